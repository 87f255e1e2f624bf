"""What the supervisor is given for a plugin, and what it is told when there is nothing to give."""

import sys
from pathlib import Path

import pytest

from host_service.environments import EnvironmentShelf, interpreters_of
from host_service.supervisor.errors import EnvironmentMissing
from host_service.supervisor.interpreter import HOSTS_INTERPRETER, Interpreter


def test_plugin_that_asks_for_nothing_runs_in_the_hosts_python(tmp_path: Path) -> None:
    found = interpreters_of(EnvironmentShelf(tmp_path / "data"))(tmp_path)
    assert (found.python, found.folder) == (Path(sys.executable), None)
    found.hold()()
    assert found.complete({"PATH": "/bin"}) == {"PATH": "/bin"}
    assert HOSTS_INTERPRETER.python == found.python


def test_environment_that_is_not_built_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("lamp\n")
    found = interpreters_of(EnvironmentShelf(tmp_path / "data"))(tmp_path)
    assert not found.python.exists()
    with pytest.raises(EnvironmentMissing, match=f"run 'runmesh plugins build {tmp_path}'"):
        found.hold()


def test_plugin_that_asks_for_what_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("-e .\n")
    with pytest.raises(EnvironmentMissing, match=r"can have no environment: requirements\.txt:1"):
        interpreters_of(EnvironmentShelf(tmp_path / "data"))(tmp_path)


def test_programs_of_an_environment_come_first(tmp_path: Path) -> None:
    interpreter = Interpreter(tmp_path / "bin" / "python", tmp_path)
    assert interpreter.complete({"PATH": "/usr/bin:/bin", "TZ": "UTC"}) == {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
        "TZ": "UTC",
        "VIRTUAL_ENV": str(tmp_path),
    }
    assert interpreter.complete({})["PATH"].startswith(f"{tmp_path}/bin:/")
