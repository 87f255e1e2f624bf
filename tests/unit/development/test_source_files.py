"""Which files of a plugin's folder count, and what is a change of one."""

import os
from pathlib import Path

import pytest

from host_service.development.source_files import SourceFiles, changed_paths


def _write(folder: Path, *paths: str) -> None:
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 1\n")


def test_sources_manifests_and_prompts_count(tmp_path: Path) -> None:
    paths = {"manifest.yaml", "weather/main.py", "weather/prompts/ask.md", "requirements.txt"}
    _write(tmp_path, *paths)
    assert set(SourceFiles(tmp_path).look()) == paths


@pytest.mark.parametrize(
    "path",
    [
        ".git/HEAD",
        ".venv/bin/python",
        ".main.py.swp",
        ".#main.py",
        "weather/__pycache__/main.cpython-311.pyc",
        "node_modules/left/index.js",
        "target/debug/weather",
        "dist/weather.js",
        "bin/weather",
        "main.py~",
        "#main.py#",
        "4913",
        "main.py.swp",
        "weather.log",
        "memory.sqlite3-wal",
        "weather-0.1.0.rmpkg",
    ],
)
def test_what_tools_editors_and_builds_leave_does_not_count(tmp_path: Path, path: str) -> None:
    _write(tmp_path, "main.py", path)
    assert set(SourceFiles(tmp_path).look()) == {"main.py"}


def test_folder_named_like_a_build_counts_further_down(tmp_path: Path) -> None:
    _write(tmp_path, "weather/bin/tool.py")
    assert set(SourceFiles(tmp_path).look()) == {"weather/bin/tool.py"}


def test_virtual_environment_of_any_name_does_not_count(tmp_path: Path) -> None:
    _write(tmp_path, "main.py", "my-python/pyvenv.cfg", "my-python/lib/site.py")
    assert set(SourceFiles(tmp_path).look()) == {"main.py"}


def test_patterns_of_the_plugin_and_of_the_caller_hold_and_may_change(tmp_path: Path) -> None:
    _write(tmp_path, "main.py", "notes/day.txt", "scratch.py")
    files = SourceFiles(tmp_path, left_out=["scratch.py"])
    assert set(files.look()) == {"main.py", "notes/day.txt"}
    (tmp_path / ".rmpkgignore").write_text("notes/\n")
    assert set(files.look()) == {"main.py"}


def test_file_that_comes_goes_or_has_another_content_is_a_change(tmp_path: Path) -> None:
    _write(tmp_path, "stays.py", "goes.py", "changes.py")
    files = SourceFiles(tmp_path)
    before = files.look()
    (tmp_path / "goes.py").unlink()
    (tmp_path / "changes.py").write_text("x = 22\n")
    _write(tmp_path, "comes.py")
    assert changed_paths(before, files.look()) == ["changes.py", "comes.py", "goes.py"]


def test_file_that_another_takes_the_place_of_is_a_change(tmp_path: Path) -> None:
    _write(tmp_path, "main.py")
    status = (tmp_path / "main.py").stat()
    files = SourceFiles(tmp_path)
    before = files.look()
    other = tmp_path / "main.py.tmp"
    other.write_text("y = 1\n")
    # Same size and same time: as `cp -p` and some synchronisers leave it.
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(tmp_path / "main.py")
    assert changed_paths(before, files.look()) == ["main.py"]


def test_link_to_a_folder_above_is_not_followed_and_a_linked_file_is(tmp_path: Path) -> None:
    _write(tmp_path, "shared.py", "plugin/main.py")
    folder = tmp_path / "plugin"
    (folder / "up").symlink_to(tmp_path)
    (folder / "shared.py").symlink_to(tmp_path / "shared.py")
    files = SourceFiles(folder)
    before = files.look()
    assert set(before) == {"main.py", "shared.py"}
    (tmp_path / "shared.py").write_text("x = 333\n")
    assert changed_paths(before, files.look()) == ["shared.py"]


def test_folder_that_is_gone_has_no_files(tmp_path: Path) -> None:
    assert SourceFiles(tmp_path / "nowhere").look() == {}


def test_pipe_in_the_folder_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert SourceFiles(tmp_path).look() == {}


def test_names_that_are_no_text_are_files_like_others(tmp_path: Path) -> None:
    name = os.fsdecode(b"odd-\xff.py")
    (tmp_path / name).write_text("x = 1\n")
    assert set(SourceFiles(tmp_path).look()) == {name}


def test_compiled_code_of_changed_sources_goes_and_that_of_others_stays(tmp_path: Path) -> None:
    _write(tmp_path, "weather/main.py", "weather/rain.py", "weather/main[1].py")
    for name in ("main.cpython-311.pyc", "main.cpython-311.opt-1.pyc", "rain.cpython-311.pyc"):
        _write(tmp_path, f"weather/__pycache__/{name}")
    files = SourceFiles(tmp_path)
    files.forget_compiled(["weather/main.py", "weather/main[1].py", "weather/gone.py", "note.md"])
    left = (tmp_path / "weather" / "__pycache__").iterdir()
    assert [each.name for each in left] == ["rain.cpython-311.pyc"]
