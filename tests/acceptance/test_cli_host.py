"""`runmesh up`: what is in the way of a start is told in a line, and nothing else is disturbed."""

import signal
import socket
from pathlib import Path

import pytest

from host_service.cli.running_host import host_holds
from tests.acceptance.commands import CommandLine, running, wait_for

UP = ("up", "--grpc", "127.0.0.1:0", "--http", "off")


def test_a_second_host_on_a_data_folder_is_refused_and_the_first_stays(
    running_host: CommandLine,
) -> None:
    before = running_host.host_file()
    second = running_host.process(*UP)
    assert second.status == 1
    line = second.error_line()
    assert str(running_host.data) in line
    assert "--data" in line
    assert running_host.host_file() == before
    assert running_host("chat", "still there").out == "still there\n"


@pytest.mark.parametrize("option", ["--grpc", "--http"])
def test_an_address_in_use_is_named(
    option: str, running_host: CommandLine, alone: CommandLine
) -> None:
    taken = running_host.host_file()[option.removeprefix("--")]
    other = {"--grpc": "--http", "--http": "--grpc"}[option]
    ran = alone.process("up", option, taken, other, "127.0.0.1:0")
    assert ran.status == 1
    line = ran.err.splitlines()[-1]
    assert line.startswith("runmesh: ")
    assert taken in line
    assert option in line
    assert running_host("chat", "still there").out == "still there\n"


def test_an_address_that_others_can_reach_needs_an_explicit_word(alone: CommandLine) -> None:
    ran = alone.process("up", "--grpc", "0.0.0.0:0", "--http", "off")
    assert ran.status == 1
    assert "--insecure" in ran.err.splitlines()[-1]


def test_faults_of_a_configuration_are_told_one_a_line(alone: CommandLine, tmp_path: Path) -> None:
    configuration = tmp_path / "mesh.yaml"
    configuration.write_text("agents:\n- id: 1\n  runner: x\n")
    ran = alone.process(*UP, "--config", str(configuration))
    assert ran.status == 1
    told = [line for line in ran.err.splitlines() if line.startswith("runmesh: ")]
    assert told == [
        f'runmesh: {configuration}:2: agents[0].id: must be a text; got a number: quote it: "1"',
        f"runmesh: {configuration}:2: agents[0].runner_id: is required and missing",
        f"runmesh: {configuration}:3: agents[0].runner: is not known; did you mean runner_id?",
    ]


def test_a_host_stops_when_its_standard_input_ends(alone: CommandLine) -> None:
    with alone.started(*UP, "--quit-with-stdin") as host:
        wait_for((alone.data / "host.json").exists)
        host.communicate(timeout=20)
        assert host.returncode == 0
    assert not (alone.data / "host.json").exists()


def test_a_command_that_comes_too_early_waits_for_the_host(alone: CommandLine) -> None:
    with alone.started(*UP) as host:
        wait_for(lambda: host_holds(alone.data))
        assert alone("chat", "early").out == "early\n"
        host.send_signal(signal.SIGTERM)
        host.communicate(timeout=45)
        assert host.returncode == 0


def test_a_host_that_was_killed_is_not_taken_for_running(alone: CommandLine) -> None:
    with alone.started(*UP):
        wait_for((alone.data / "host.json").exists)
    ran = alone("runs", "list")
    assert ran.status == 1
    assert ran.error_line() == f"no host is running on {alone.data}: start one with 'runmesh up'"
    with running(alone.data) as command_line:
        again = command_line("chat", "again")
        assert (again.out, again.err) == ("again\n", "")


def test_a_host_elsewhere_is_reached_by_address_and_key(
    running_host: CommandLine, alone: CommandLine
) -> None:
    address = running_host.host_file()["grpc"]
    key = running_host("keys", "show").out.strip()
    ran = alone("chat", "far", "--address", address, environment={"RUNMESH_API_KEY": key})
    assert ran.out == "far\n"
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 2):
        pass
