"""`runmesh runs explain`: why a run came out as it did."""

import json
import os
import pty
import re
import subprocess

from tests.acceptance.commands import RUNMESH, CommandLine
from tests.acceptance.test_cli_runs import a_run, slow_run


def section(shown: str, heading: str) -> list[str]:
    """Return the lines under a heading."""
    _, _, rest = shown.partition(f"\n{heading}\n")
    return rest.partition("\n\n")[0].splitlines()


def test_run_is_explained_in_the_order_in_which_it_happened(running_host: CommandLine) -> None:
    running_host("chat", "why, 世界?")
    [run] = running_host("runs", "list", "--limit", "1", "--json").json()
    shown = running_host("runs", "explain", run["run_id"]).out
    headings = [line for line in shown.splitlines() if line.isupper() and "  " not in line]
    assert headings == [
        "WHAT ARRIVED",
        "WHICH AGENT, AND WHY",
        "WHAT IT WAS GRANTED",
        "WHAT IT ASKED OF THE HOST",
        "WHAT IT SAID",
        "WHERE THE TIME WENT",
    ]
    assert "said          why, 世界?" in section(shown, "WHAT ARRIVED")
    assert "chosen by      binding default-messages: everywhere, message.received" in section(
        shown, "WHICH AGENT, AND WHY"
    )
    granted = section(shown, "WHAT IT WAS GRANTED")
    assert granted[0].split(maxsplit=1) == [
        "state",
        "actor (state.scopes), conversation (state.scopes)",
    ]
    assert section(shown, "WHAT IT ASKED OF THE HOST") == ["nothing"]
    assert any("message_completed" in line for line in section(shown, "WHAT IT SAID"))
    assert any(
        line.startswith("calling the runner, until its first result")
        for line in section(shown, "WHERE THE TIME WENT")
    )
    assert "what next" not in shown


def test_explanation_is_json_with_the_names_of_the_contract(running_host: CommandLine) -> None:
    run_id = a_run(running_host)
    told = running_host("runs", "explain", run_id, "--json").json()
    assert told["run"]["run_id"] == run_id
    assert told["arrival"]["event"]["type"] == "message.received"
    assert "caller" in told["resolution"]
    assert json.loads(told["agent"]["config_json"]) == {}
    assert {each["kind"] for each in told["rights"]["grants"]} >= {"state", "storage"}
    assert [each["kind"] for each in told["said"]["results"]] == [
        "message_completed",
        "run_completed",
    ]
    assert told["stretches"][-1]["name"] in {"runner", "end"}


def test_failed_run_says_what_to_do_next(running_host: CommandLine) -> None:
    shown = running_host("runs", "explain", a_run(running_host, agent="crashing")).out
    assert "failure    runner.crashed: " in shown
    assert "what next  The runner's process ended in the middle of the run" in shown
    assert re.search(r'^configuration  {"failure": ?"crash"}$', shown, re.MULTILINE)


def test_run_under_way_is_explained_so_far(running_host: CommandLine) -> None:
    with slow_run(running_host) as (_, run_id, _):
        shown = running_host("runs", "explain", run_id).out
        assert "took    it is still running\n" in shown
        assert "what next" not in shown
        running_host("runs", "cancel", run_id)
    assert "cancelled: " in running_host("runs", "explain", run_id).out


def test_unknown_run_is_one_clear_line(running_host: CommandLine) -> None:
    refused = running_host("runs", "explain", "no-such-run")
    assert refused.status == 1
    assert refused.error_line() == (
        "NOT_FOUND: there is no run 'no-such-run': 'runmesh runs list' shows the runs"
    )


def test_explanation_fits_a_terminal_of_80_columns(running_host: CommandLine) -> None:
    run_id = a_run(running_host, "word " * 100, agent="crashing")
    ours, theirs = pty.openpty()
    environment = running_host.environment({"COLUMNS": "80", "LINES": "40", "NO_COLOR": "1"})
    process = subprocess.Popen(
        [RUNMESH, "runs", "explain", run_id], stdin=theirs, stdout=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    try:
        while block := os.read(ours, 65536):
            shown += block
    except OSError:
        # The other end was closed, which Linux tells so.
        pass
    finally:
        os.close(ours)
    assert process.wait(30) == 0
    lines = re.sub(r"\x1b\[[0-9;]*m|\r", "", shown.decode()).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("…" in line for line in lines)
