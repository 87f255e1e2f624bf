"""Tests of the commands by which a plugin in any language is made and tested."""

from pathlib import Path

import pytest

from host_service.packages.errors import BuildCommandFailed, OwnTestsFailed
from host_service.packages.own_commands import run_own_build, run_own_test_command


def test_build_runs_in_the_plugins_folder_and_says_nothing_on_standard_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_own_build(tmp_path, "echo made > program && echo compiling")
    assert (tmp_path / "program").read_text() == "made\n"
    assert capfd.readouterr() == ("", "compiling\n")
    run_own_build(tmp_path, "")


def test_build_that_fails_is_told_with_its_status(tmp_path: Path) -> None:
    with pytest.raises(BuildCommandFailed, match="'exit 3' ended with status 3"):
        run_own_build(tmp_path, "exit 3")


def test_own_tests_run_where_there_are_any(tmp_path: Path) -> None:
    assert run_own_test_command(tmp_path, "test -d . && touch ran")
    assert (tmp_path / "ran").exists()
    assert not run_own_test_command(tmp_path, "")
    with pytest.raises(OwnTestsFailed, match="'false' ended with 1"):
        run_own_test_command(tmp_path, "false")
