"""`runmesh apply`: what a file declares is there afterwards, all of it or nothing."""

from pathlib import Path

import pytest

from tests.acceptance.commands import CommandLine

DECLARED = """\
agents:
- id: applied
  runner_id: plugin:runmesh/echo/default
  timeout: 60s
  config:
    repeat: 2
    size: 3
bindings:
- id: applied-night
  agent_id: applied
  event_types: [message.received]
  scope: {conversation_id: night}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mesh.yaml"
    path.write_text(DECLARED)
    return path


def test_what_a_file_declares_is_created_updated_and_left_alone(
    running_host: CommandLine, file: Path
) -> None:
    def kinds(*options: str) -> dict[str, str]:
        changes = running_host("apply", "-f", str(file), "--json", *options).json()
        return {change["id"]: change["kind"] for change in changes}

    assert set(kinds("--dry-run").values()) == {"CHANGE_KIND_CREATED"}
    assert "applied" not in running_host("agents", "list").out
    assert set(kinds().values()) == {"CHANGE_KIND_CREATED"}
    assert set(kinds().values()) == {"CHANGE_KIND_UNCHANGED"}
    assert running_host("chat", "x", "--conversation", "night").out == "xxxxxx\n"

    file.write_text(DECLARED.replace("repeat: 2", "repeat: 1"))
    shown = running_host("apply", "-f", str(file), "--dry-run").out
    assert "would be updated" in shown
    assert "config.repeat: 2 -> 1" in shown
    assert kinds() == {
        "applied": "CHANGE_KIND_UPDATED",
        "applied-night": "CHANGE_KIND_UNCHANGED",
    }
    assert running_host("chat", "x", "--conversation", "night").out == "xxx\n"


def test_a_file_can_come_through_a_pipe(running_host: CommandLine) -> None:
    text = "agents: [{id: piped, runner_id: plugin:runmesh/echo/default}]\n"
    assert running_host("apply", "-f", "-", sent=text).status == 0
    assert "piped" in running_host("agents", "list").out
    bad = running_host("apply", "-f", "-", sent="agents: 1\n")
    assert bad.error_line() == "standard input:1: agents: must be a list; got a single value"


def test_every_fault_of_a_file_is_told_with_its_line(running_host: CommandLine, file: Path) -> None:
    file.write_text("agents:\n- id: x\n  runner_di: y\n  enabled: yes\nbinding: []\n")
    ran = running_host("apply", "-f", str(file))
    assert ran.status == 1
    assert ran.out == ""
    assert ran.err.splitlines() == [
        f"runmesh: {file}:2: agents[0].runner_id: is required and missing",
        f"runmesh: {file}:3: agents[0].runner_di: is not known; did you mean runner_id?",
        f'runmesh: {file}:4: agents[0].enabled: YAML may read yes as true: write true, or "yes"',
        f"runmesh: {file}:5: binding: is not known; did you mean bindings?",
    ]


def test_what_the_host_finds_wrong_is_told_with_its_line_too(
    running_host: CommandLine, file: Path
) -> None:
    file.write_text("agents:\n- id: fine\n  runner_id: nonsense\n")
    ran = running_host("apply", "-f", str(file))
    assert ran.status == 1
    assert ran.error_line().startswith(f"{file}:3: agents[0].runner_id: ")
    assert "fine" not in running_host("agents", "list").out


def test_bindings_that_tie_are_refused_by_name(running_host: CommandLine, file: Path) -> None:
    one = "{id: %s, agent_id: default, event_types: [api.invoked]}"
    file.write_text(f"bindings: [{one % 'tie-a'}, {one % 'tie-b'}]\n")
    ran = running_host("apply", "-f", str(file))
    assert ran.status == 1
    line = ran.error_line()
    assert line.startswith("BINDING_CONFLICT: ")
    assert "tie-a" in line
    assert "tie-b" in line


def test_limits_belong_to_a_host(running_host: CommandLine, file: Path) -> None:
    file.write_text("limits: {active_runs: 1}\n")
    assert "runmesh up --config" in running_host("apply", "-f", str(file)).error_line()


def test_a_file_that_is_not_there_is_named(running_host: CommandLine, tmp_path: Path) -> None:
    ran = running_host("apply", "-f", str(tmp_path / "none.yaml"))
    assert (
        ran.error_line() == f"{tmp_path / 'none.yaml'}: cannot be read: No such file or directory"
    )
