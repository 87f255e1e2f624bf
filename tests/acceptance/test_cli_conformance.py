"""`runmesh conformance`: what an author of a runner sees."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from host_service.settings import shipped_plugins_folder
from host_service.supervisor import SocketFolder
from tests.acceptance.commands import RUNMESH, CommandLine
from tests.conformance.runners.plugin_folders import RAW_RUNNER, raw_plugin

ECHO = str(shipped_plugins_folder() / "echo")
QUICK = ("--only", "handshake", "--only", "input.text", "--only", "results.sequence")


@pytest.fixture
def runmesh(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "data")


@contextmanager
def serving(fault: str = "") -> Iterator[str]:
    """A raw runner that somebody else started; yields where it listens."""
    with SocketFolder.create() as sockets:
        path = sockets.new_path()
        process = subprocess.Popen(
            [sys.executable, str(RAW_RUNNER), fault],
            env={"RUNMESH_LISTEN": f"unix:{path}", "PATH": "/usr/bin:/bin"},
        )
        try:
            yield f"unix:{path}"
        finally:
            process.kill()
            process.wait()


def test_a_plugin_that_passes_gets_a_line_a_check_and_exit_status_0(runmesh: CommandLine) -> None:
    ran = runmesh("conformance", "--plugin", ECHO, *QUICK)
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "ok       process.starts"
    assert "ok       input.text                   it said 'Hello, runner.'" in lines
    assert lines[-1].startswith("plugin:runmesh/echo/default (runmesh-sdk python ")
    assert f"{len(lines) - 2} ok, 0 failed, 0 skipped" in lines[-1]


def test_a_failure_says_what_was_expected_what_came_and_what_to_do(runmesh: CommandLine) -> None:
    with serving("skips_sequence") as address:
        ran = runmesh("conformance", address, "--only", "input.text", "--only", "results.sequence")
    assert ran.status == 1
    first = "failed   results.sequence             A run's results are numbered 1, 2, 3"
    start = ran.out.index(first)
    told = ran.out[start:].splitlines()[1:5]
    assert [line.split()[0] for line in told] == ["expected", "got", "do", "rule"]
    assert "sequence 2 in the result that came as number 2" in told[0]
    assert "sequence 3 in run 1 (a plain text)" in told[1]
    assert "count in one place" in told[2]
    assert "result.proto, RunResult.sequence" in told[3]
    assert "1 ok, 1 failed, 0 skipped" in ran.out


def test_a_report_can_be_had_as_json_and_as_junit_xml(runmesh: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    folder = raw_plugin(tmp_path / "raw", "no_terminal")
    only = ("--only", "results.terminal", "--only", "load.limit")
    ran = runmesh("conformance", "--plugin", str(folder), *only, "--json", "--junit", str(file))
    assert ran.status == 1
    report = ran.json()
    assert report["runner_id"] == "plugin:acme/raw/default"
    verdicts = {each["name"]: each["verdict"] for each in report["outcomes"]}
    assert verdicts == {
        "process.starts": "ok",
        "load.limit": "skipped",
        "results.terminal": "failed",
    }
    (suite,) = ET.parse(file).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")


def test_a_plugin_can_be_checked_as_it_attaches(runmesh: CommandLine) -> None:
    only = ("--only", "attach.hello", "--only", "input.text", "--only", "health.serving")
    ran = runmesh("conformance", "--plugin", ECHO, "--attach", *only)
    assert (ran.status, ran.err) == (0, "")
    assert [line.split()[:2] for line in ran.out.splitlines()[:4]] == [
        ["ok", "process.starts"],
        ["skipped", "health.serving"],
        ["ok", "input.text"],
        ["ok", "attach.hello"],
    ]


def test_a_runner_that_is_to_attach_is_told_how(tmp_path: Path) -> None:
    """The variables are printed before anything attaches, and are all that a runner needs."""
    command = [str(RUNMESH), "conformance", "--attach", "--only", "input.text"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as kit:
        assert kit.stderr is not None
        told = kit.stderr.readline().removeprefix("waiting for a runner that is started with ")
        variables = dict(word.split("=", 1) for word in told.split())
        assert set(variables) == {"RUNMESH_ATTACH", "RUNMESH_ATTACH_TOKEN"}
        runner = subprocess.Popen(
            [sys.executable, "-m", "echo.main"],
            cwd=ECHO,
            env=variables | {"PATH": "/usr/bin:/bin"},
            stderr=subprocess.DEVNULL,
        )
        try:
            out, _ = kit.communicate(timeout=40)
        finally:
            runner.kill()
            runner.wait()
    assert "ok       input.text" in out
    assert kit.returncode == 0


def test_what_a_process_wrote_is_shown_when_it_does_not_start(
    runmesh: CommandLine, tmp_path: Path
) -> None:
    ran = runmesh("conformance", "--plugin", str(raw_plugin(tmp_path / "raw", "does_not_listen")))
    assert ran.status == 1
    assert ran.out.startswith("failed   process.starts")
    assert "exited with code 1; the last it wrote:" in ran.out
    assert "there is no such thing" in ran.out


def test_nobody_at_the_address_is_exit_status_2(runmesh: CommandLine) -> None:
    ran = runmesh("conformance", "unix:/tmp/nobody-is-here.sock")
    assert ran.status == 2
    assert ran.error_line() == (
        "nobody serves gRPC at unix:/tmp/nobody-is-here.sock, tried for 5 s: start the runner "
        "first, or name its folder with --plugin"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "conformance needs a runner: give ADDRESS, or --plugin DIR"),
        (("127.0.0.1:1", "--plugin", ECHO), "conformance needs a runner"),
        (("127.0.0.1:1", "--only", "imput"), "no check is named 'imput'"),
        (("127.0.0.1:1", "--config", "[1]"), "'[1]' is not a JSON object"),
        (("127.0.0.1:1", "--slow-config", "{"), "'{' is not JSON"),
        (("10.0.0.1:7443",), "10.0.0.1:7443 is another machine, and would be dialled without TLS"),
        (("--plugin", "/nowhere"), "/nowhere"),
        (("127.0.0.1:1", "--host-api-listen", "0.0.0.0:0"), "no address that a runner could be"),
        (("127.0.0.1:1", "--host-api-listen", "unix:/tmp/x"), "takes HOST:PORT"),
    ],
)
def test_wrong_usage_is_exit_status_2_and_one_line(
    arguments: tuple[str, ...], told: str, runmesh: CommandLine
) -> None:
    ran = runmesh("conformance", *arguments)
    assert ran.status == 2
    assert told in ran.error_line()


def test_checks_are_listed_with_what_they_ask(runmesh: CommandLine) -> None:
    ran = runmesh("conformance", "--list", "--only", "process")
    assert ran.status == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == [
        "process.starts",
        "process.instance-id",
        "process.drains",
        "process.ends",
    ]
    listed = json.loads(runmesh("conformance", "--list", "--json", "--skip", "results.*").out)
    assert {each["name"] for each in listed} >= {"input.echo", "tokens.own"}
    assert not any(each["name"].startswith("results.") for each in listed)
    assert all(each["asks"].endswith(".") for each in listed)
