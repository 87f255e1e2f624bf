"""`runmesh runs`, `runners`, `agents` and `bindings`: looking at what there is."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.acceptance.commands import CommandLine


def a_run(command_line: CommandLine, text: str = "hello", agent: str = "default") -> str:
    command_line("chat", text, "--agent", agent)
    [run] = command_line("runs", "list", "--agent", agent, "--limit", "1", "--json").json()
    return str(run["run_id"])


@contextmanager
def slow_run(
    command_line: CommandLine,
) -> "Iterator[tuple[subprocess.Popen[bytes], str, subprocess.Popen[bytes]]]":
    """A run under way: the chat that started it, its id, and a watcher that follows it."""
    with command_line.started("chat", "go", "--agent", "slow") as chat:
        assert chat.stdout is not None
        os.read(chat.stdout.fileno(), 4)
        [run] = command_line("runs", "list", "--status", "running", "--json").json()
        with command_line.started("runs", "watch", run["run_id"]) as watch:
            assert watch.stdout is not None
            os.read(watch.stdout.fileno(), 4)
            yield chat, str(run["run_id"]), watch


def test_runs_are_listed_with_the_names_of_the_contract(running_host: CommandLine) -> None:
    run_id = a_run(running_host)
    newest, *_ = running_host("runs", "list", "--json").json()
    assert newest["run_id"] == run_id
    assert newest["status"] == "RUN_STATUS_COMPLETED"
    assert newest["agent_id"] == "default"
    assert newest["runner_id"] == "plugin:runmesh/echo/default"
    assert isinstance(newest["last_sequence"], int)
    assert newest["created_at"].endswith("Z")


def test_runs_are_listed_across_pages_up_to_a_limit(running_host: CommandLine) -> None:
    running_host("chat", sent="".join(f"{n}\n" for n in range(105)))
    listed = running_host("runs", "list", "--limit", "104", "--json").json()
    assert len({run["run_id"] for run in listed}) == 104
    times = [run["created_at"] for run in listed]
    assert times == sorted(times, reverse=True)


def test_a_table_of_runs_fits_a_terminal_and_keeps_ids_whole(running_host: CommandLine) -> None:
    run_id = a_run(running_host)
    header, first, *_ = running_host("runs", "list").out.splitlines()
    assert header.split() == ["RUN", "STATUS", "CREATED", "TOOK", "AGENT"]
    assert first.split()[:2] == [run_id, "completed"]
    assert first.split()[-1] == "default"
    assert len(first) <= 80


def test_runs_are_filtered_by_status_and_agent(running_host: CommandLine) -> None:
    run_id = a_run(running_host, agent="failing")
    failed = running_host("runs", "list", "--status", "failed", "--json").json()
    assert run_id in {run["run_id"] for run in failed}
    assert {run["status"] for run in failed} == {"RUN_STATUS_FAILED"}
    none = running_host("runs", "list", "--status", "queued", "--agent", "failing")
    assert (none.status, none.out, none.err) == (0, "", "no runs\n")


def test_a_run_is_shown_with_its_results(running_host: CommandLine) -> None:
    run_id = a_run(running_host, "hello there, 世界")
    shown = running_host("runs", "show", run_id).out
    assert f"run           {run_id}\n" in shown
    assert "status        completed\n" in shown
    assert "hello there, 世界" in shown
    as_json = running_host("runs", "show", run_id, "--json").json()
    assert as_json["run_id"] == run_id
    texts = [
        part["text"]
        for result in as_json["results"]
        if "message_completed" in result
        for part in result["message_completed"]["message"]["parts"]
    ]
    assert texts == ["hello there, 世界"]
    assert "run_completed" in as_json["results"][-1]


def test_a_failed_run_shows_why(running_host: CommandLine) -> None:
    shown = running_host("runs", "show", a_run(running_host, agent="failing")).out
    assert "echo.asked: the configuration asks for a failure" in shown
    crashed = running_host("runs", "show", a_run(running_host, agent="crashing")).out
    assert "runner.crashed" in crashed


def test_a_run_that_has_ended_is_replayed_to_a_watcher(running_host: CommandLine) -> None:
    run_id = a_run(running_host, "watch me, 世界")
    watched = running_host("runs", "watch", run_id)
    assert (watched.status, watched.out) == (0, "watch me, 世界\n")
    lines = [
        json.loads(line)
        for line in running_host("runs", "watch", run_id, "--json").out.splitlines()
    ]
    assert lines[0]["accepted"]["run_id"] == run_id
    assert lines[-1]["ended"]["status"] == "RUN_STATUS_COMPLETED"
    last = lines[-1]["ended"]["last_sequence"]
    after = running_host("runs", "watch", run_id, "--after", str(last), "--json").out.splitlines()
    assert [next(iter(json.loads(line))) for line in after] == ["accepted", "ended"]


def test_watching_a_failed_run_ends_with_a_status(running_host: CommandLine) -> None:
    watched = running_host("runs", "watch", a_run(running_host, agent="failing"))
    assert watched.status == 1
    assert watched.out == "Before the fault. \n"
    assert "echo.asked" in watched.err


def test_a_run_is_watched_and_cancelled_from_elsewhere(running_host: CommandLine) -> None:
    with slow_run(running_host) as (chat, run_id, watch):
        assert "running" in running_host("runs", "show", run_id).out
        cancelled = running_host("runs", "cancel", run_id, "--reason", "enough")
        assert (cancelled.status, cancelled.out) == (0, f"run {run_id} was cancelled\n")
        for process in (chat, watch):
            _, err = process.communicate(timeout=20)
            assert process.returncode == 1
            assert err.decode() == f"runmesh: run {run_id} was cancelled\n"
    assert running_host("runs", "cancel", run_id).status == 0


def test_a_watcher_leaves_on_ctrl_c(running_host: CommandLine) -> None:
    with slow_run(running_host) as (chat, run_id, watch):
        watch.send_signal(signal.SIGINT)
        _, err = watch.communicate(timeout=20)
        assert (watch.returncode, err) == (130, b"")
        assert running_host("runs", "cancel", run_id).status == 0
        chat.communicate(timeout=20)


def test_a_run_that_ended_before_stays_as_it_was(running_host: CommandLine) -> None:
    run_id = a_run(running_host)
    ran = running_host("runs", "cancel", run_id)
    assert (ran.status, ran.out) == (0, f"run {run_id} had ended before: completed\n")


def test_an_unknown_run_is_named_with_what_to_do(running_host: CommandLine) -> None:
    for command in ("show", "watch", "cancel"):
        ran = running_host("runs", command, "no-such-run")
        assert ran.status == 1
        line = ran.error_line()
        assert line.startswith("NOT_FOUND: ")
        assert "no-such-run" in line
        assert line.endswith("'runmesh runs list' shows the runs")


def test_runners_are_listed_with_their_instances(running_host: CommandLine) -> None:
    [echo] = [
        runner
        for runner in running_host("runners", "list", "--json").json()
        if runner["id"] == "plugin:runmesh/echo/default"
    ]
    assert "INSTANCE_STATE_SERVING" in {instance["state"] for instance in echo["instances"]}
    instances = running_host("runners", "list", "--only", "instances", "--json").json()
    plugin_ids = {instance["plugin_id"] for instance in instances}
    assert plugin_ids == {"runmesh/echo", "runmesh/local-agent"}
    shown = running_host("runners", "list").out
    assert "plugin:runmesh/echo/default" in shown
    assert "serving" in shown


def test_agents_and_bindings_are_listed(running_host: CommandLine) -> None:
    agents = running_host("agents", "list", "--json").json()
    assert {"default", "slow", "failing"} <= {agent["id"] for agent in agents}
    bindings = running_host("bindings", "list", "--json").json()
    assert "default" in {binding["agent_id"] for binding in bindings}
    of_default = running_host("bindings", "list", "--agent", "default", "--json").json()
    assert {binding["agent_id"] for binding in of_default} == {"default"}
    assert "default" in running_host("agents", "list").out
    assert "message.received" in running_host("bindings", "list").out


def test_output_that_nobody_reads_any_more_is_no_failure_to_talk_about(
    running_host: CommandLine,
) -> None:
    with running_host.started("runs", "list", "--json", "--limit", "1000") as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        listing.stdout.close()
        listing.stdout = None
        assert listing.wait(20) == 141
        assert listing.stderr.read() == b""
