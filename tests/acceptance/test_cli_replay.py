"""`runmesh runs replay`: the event of a run once more, on a runner of choice."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import host_service
from tests.acceptance.commands import CommandLine, wait_for
from tests.acceptance.test_cli_runs import a_run

ECHO = Path(host_service.__file__).parents[1] / "plugins" / "echo" / "manifest.yaml"

# The runner that is being mended, say: it says something else, and tells what it was told.
OTHER = """
import sys
from runner_sdk import agent_runner, serve

@agent_runner
def other(ctx):
    metadata = ctx.proto.runtime.metadata
    return ctx.reply(f"mended: {ctx.text}, {metadata['replay_of']}, {metadata['side_effects']}")

serve(other, manifest=sys.argv[1], listen=sys.argv[2])
"""


@contextmanager
def served(script: str, folder: Path) -> Iterator[str]:
    """Serves a runner of the echo plugin's manifest beside the host; gives its address."""
    file, socket = folder / "other.py", folder / "r.sock"
    file.write_text(script)
    process = subprocess.Popen([sys.executable, file, ECHO, f"unix:{socket}"])
    try:
        wait_for(socket.exists)
        yield f"unix:{socket}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def test_replay_says_that_it_came_out_as_the_original(running_host: CommandLine) -> None:
    run_id = a_run(running_host, "once more, 世界")
    replayed = running_host("runs", "replay", run_id)
    assert (replayed.status, replayed.out) == (0, "once more, 世界\n")
    first, last = replayed.err.splitlines()
    assert f" of {run_id} on plugin:runmesh/echo/default" in first
    assert last == "as the original: completed, the same text"
    replay_id = first.split()[1]
    shown = running_host("runs", "show", replay_id).out
    assert f"replay of     {run_id}\n" in shown
    explained = running_host("runs", "explain", replay_id).out
    assert "an operator, who had a run replayed without side effects" in explained
    assert f"replayed by  {replay_id}" in running_host("runs", "explain", run_id).out


def test_replay_on_a_runner_of_choice_tells_what_came_out_otherwise(
    running_host: CommandLine, tmp_path: Path
) -> None:
    run_id = a_run(running_host, "hello", agent="failing")
    with served(OTHER, tmp_path) as address:
        replayed = running_host("runs", "replay", run_id, "--runner", address)
        loud = running_host("runs", "replay", run_id, "--runner", address, "--with-side-effects")
        other = running_host(
            "runs", "replay", run_id, "--runner", address, "--as", "plugin:acme/other/default"
        )
    assert (replayed.status, replayed.out) == (0, f"mended: hello, {run_id}, off\n")
    assert replayed.err.splitlines()[-1] == (
        "not as the original: completed instead of failed (echo.asked), another text"
    )
    assert loud.out == f"mended: hello, {run_id}, on\n"
    assert "UNAVAILABLE: the runner at unix:" in other.error_line()
    assert "its handshake names 'runmesh/echo'" in other.error_line()
    # Nothing else ever reaches that runner.
    assert "static" not in running_host("runners", "list").out
    again = running_host("runs", "replay", run_id)
    assert (again.status, again.out) == (1, "Before the fault. \n")
    assert "as the original: failed (echo.asked), the same text" in again.err
    assert "the run failed: echo.asked" in again.err


def test_replay_is_json_line_by_line_with_the_names_of_the_contract(
    running_host: CommandLine,
) -> None:
    run_id = a_run(running_host, "hello")
    lines = [
        json.loads(line)
        for line in running_host("runs", "replay", run_id, "--json").out.splitlines()
    ]
    assert lines[0]["accepted"]["replay_of"] == run_id
    assert lines[-1]["ended"]["original"]["run_id"] == run_id
    assert lines[-1]["ended"]["differs_in"] == []
    assert {next(iter(line)) for line in lines[1:-1]} == {"results"}


def test_interrupted_replay_is_cancelled(running_host: CommandLine) -> None:
    with running_host.started("chat", "go", "--agent", "slow") as chat:
        assert chat.stdout is not None
        os.read(chat.stdout.fileno(), 4)
        [run] = running_host("runs", "list", "--status", "running", "--json").json()
        running_host("runs", "cancel", run["run_id"])
    with running_host.started("runs", "replay", run["run_id"]) as replay:
        assert replay.stdout is not None
        os.read(replay.stdout.fileno(), 4)
        replay.send_signal(signal.SIGINT)
        assert replay.wait(20) == 130

    def cancelled() -> bool:
        newest = running_host("runs", "list", "--limit", "1", "--json").json()[0]
        ended: bool = newest["status"] == "RUN_STATUS_CANCELLED"
        return ended and newest["replay_of"] == run["run_id"]

    wait_for(cancelled)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("no-such-run",), "NOT_FOUND: there is no run 'no-such-run': 'runmesh runs list' shows"),
        (("{run}", "--runner", "unix:/nowhere.sock"), "UNAVAILABLE: the runner at unix:/nowhere"),
        (("{run}", "--runner", "192.0.2.1:7000"), "INVALID_ARGUMENT: "),
        (("{run}", "--as", "plugin:acme/nobody/default"), ""),
    ],
)
def test_what_cannot_be_replayed_is_told_in_one_line(
    running_host: CommandLine, arguments: tuple[str, ...], told: str
) -> None:
    run_id = a_run(running_host)
    refused = running_host("runs", "replay", *[each.format(run=run_id) for each in arguments])
    assert refused.status == 1
    if told:
        assert refused.error_line().startswith(told)
    else:
        assert "runner.unavailable: no instance serves plugin:acme/nobody/default" in refused.err


def test_address_that_is_none_is_a_usage_error(running_host: CommandLine) -> None:
    refused = running_host("runs", "replay", "run", "--runner", "nonsense")
    assert refused.status == 2
    assert "'nonsense' is not HOST:PORT" in refused.err
