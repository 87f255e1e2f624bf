"""The environments of plugins, from the command line; built from wheels that plugins bring."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.commands import CommandLine
from tests.integration.plugins.python_plugins import write_python_plugin
from tests.integration.plugins.wheels import write_wheel


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """The command line on a data folder with a plugin that brings what it asks for."""
    line = CommandLine(tmp_path / "data")
    plugin = write_python_plugin(line.data / "plugins" / "desk", "shade\n")
    write_wheel(plugin / "wheels", "shade", "1.0")
    return line


def findings(line: CommandLine) -> list[Any]:
    found = line("doctor", "--json", "--http", "off", "--grpc", "127.0.0.1:0").json()
    return [each for each in found if each["area"] == "environments"]


def test_environment_is_missed_built_listed_kept_and_cleaned(line: CommandLine) -> None:
    plugin = line.data / "plugins" / "desk"
    (missing,) = findings(line)
    assert (missing["level"], missing["advice"]) == (
        "problem",
        f"'runmesh plugins build {plugin}'",
    )
    built = line("plugins", "build", "--offline")
    assert built.status == 0
    assert "acme/desk got environment " in built.out
    assert "runmesh/echo asks for nothing: it runs in the host's own Python\n" in built.out
    assert "shade==1.0" in built.err
    again = line("plugins", "build", "--offline", str(plugin))
    assert again.out.startswith("acme/desk has environment ")
    assert again.err == ""

    (kept,) = line("plugins", "environments", "--json").json()
    assert kept["needed_by"] == ["acme/desk"]
    assert kept["requirements"] == ["shade"]
    assert kept["in_use"] is False
    assert kept["size_bytes"] > 0
    assert kept["key"] in line("plugins", "environments").out
    assert [each["level"] for each in findings(line)] == ["ok"]
    assert line("plugins", "clean").out == "0 environments are removed, 0.0 MiB\n"

    (plugin / "requirements.txt").write_text("shade==1.0\n")
    assert [each["level"] for each in findings(line)] == ["problem", "ok", "warning"]
    assert line("plugins", "clean", "--unused-for", "1h").out.startswith("0 environments")
    assert line("plugins", "clean").out.startswith("1 environments")
    assert line("plugins", "environments", "--json").json() == []
    wheels = line("plugins", "clean", "--wheels").out.splitlines()
    assert wheels[1].endswith("MiB of wheels are removed")
    assert not (line.data / "environments" / "wheels").exists()


def test_environment_unused_for_long_goes_with_the_next_change_of_plugins(
    line: CommandLine,
) -> None:
    assert line("plugins", "build", "--offline").status == 0
    write_python_plugin(line.data / "plugins" / "other")
    (kept,) = line("plugins", "environments", "--json").json()
    assert line("remove", "acme/desk").status == 0
    assert len(line("plugins", "environments", "--json").json()) == 1
    long_ago = time.time() - 31 * 86_400
    os.utime(Path(kept["folder"]) / "lock", (long_ago, long_ago))
    assert line("remove", "acme/other").status == 0
    assert line("plugins", "environments", "--json").json() == []


def test_build_that_cannot_be_is_one_line_with_what_to_do(line: CommandLine) -> None:
    folder = line.data / "plugins" / "desk"
    (folder / "requirements.txt").write_text("--index-url https://elsewhere.example/simple\n")
    ran = line("plugins", "build", str(folder), "--offline")
    assert ran.status == 1
    assert ran.error_line() == (
        "acme/desk: its environment was not built: requirements.txt:1: must be a package's name "
        "and versions (a wheel that no registry has goes into wheels/), got "
        "'--index-url https://elsewhere.example/simple': mend what it asks for, or put the wheels "
        "that are missing into its wheels/"
    )
    (told,) = findings(line)
    assert told["level"] == "problem"
    assert "requirements.txt:1" in told["told"]
    (folder / "requirements.txt").write_text("shade==7\n")
    ran = line("plugins", "build", str(folder), "--offline")
    assert ran.status == 1
    assert "shade==7" in ran.err.splitlines()[-1]
    # One that fails keeps no other from being built.
    other = write_python_plugin(line.data / "plugins" / "well", "shade\n")
    write_wheel(other / "wheels", "shade", "1.0")
    ran = line("plugins", "build", "--offline")
    assert ran.status == 1
    assert "acme/well got environment" in ran.out
    (other / "requirements.txt").unlink()
    assert line("plugins", "clean").out.startswith("1 environments")
    assert [each for each in (line.data / "environments").iterdir() if each.is_dir()] == [
        line.data / "environments" / "wheels"
    ]


def test_folder_without_a_python_plugin_has_nothing_to_build(
    line: CommandLine, tmp_path: Path
) -> None:
    ran = line("plugins", "build", str(tmp_path))
    assert ran.out.startswith("nothing to build: no Python plugin is there")
    assert line("plugins", "build", str(tmp_path / "absent")).status == 2
    assert line("plugins", "clean", "--unused-for", "soon").status == 2
