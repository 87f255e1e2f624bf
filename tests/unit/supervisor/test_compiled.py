"""What Python compiled of older sources is removed, and nothing else."""

import os
from pathlib import Path

from host_service.supervisor.compiled import forget_compiled, forget_outdated


def write(folder: Path, name: str, *, at: float) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    os.utime(path, (at, at))
    return path


def test_code_compiled_before_the_last_edit_goes_and_later_code_stays(tmp_path: Path) -> None:
    sources = [write(tmp_path, name, at=100.5) for name in ("old.py", "new.py", "note.md")]
    write(tmp_path, "__pycache__/old.cpython-311.pyc", at=100.2)
    write(tmp_path, "__pycache__/old.cpython-311.opt-1.pyc", at=100.5)
    write(tmp_path, "__pycache__/new.cpython-311.pyc", at=100.6)
    write(tmp_path, "__pycache__/note.cpython-311.pyc", at=1)
    forget_outdated([*sources, tmp_path / "gone.py"])
    left = {each.name for each in (tmp_path / "__pycache__").iterdir()}
    assert left == {"new.cpython-311.pyc", "note.cpython-311.pyc"}


def test_code_of_named_sources_goes_whenever_it_was_compiled(tmp_path: Path) -> None:
    write(tmp_path, "__pycache__/one.cpython-311.pyc", at=1e9)
    write(tmp_path, "__pycache__/two.cpython-311.pyc", at=1e9)
    forget_compiled([tmp_path / "one.py", tmp_path / "one.txt"])
    assert [each.name for each in (tmp_path / "__pycache__").iterdir()] == ["two.cpython-311.pyc"]
