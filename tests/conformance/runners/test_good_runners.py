"""Runners that keep the contract pass, whatever they are made with and wherever they listen."""

import sys
from pathlib import Path

import pytest

from host_service.conformance import (
    CHECKS,
    Options,
    Patience,
    Report,
    Verdict,
    check_address,
    check_plugin,
)
from host_service.conformance.check import Reach
from host_service.settings import shipped_plugins_folder
from host_service.supervisor import SocketFolder
from tests.conformance.runners.plugin_folders import raw_plugin, write_plugin
from tests.conformance.runners.raw_runner import RawRunner

SDK_RUNNERS = Path(__file__).with_name("sdk_runners.py")
DIALLED_ONLY = {check.name for check in CHECKS if check.reach is Reach.DIALLED}
ATTACHED_ONLY = {check.name for check in CHECKS if check.reach is Reach.ATTACHED}
# On a machine that does much else at once.
PATIENT = Patience(
    answer_seconds=20.0,
    run_seconds=40.0,
    stop_seconds=3.0,
    grace_seconds=20.0,
    health_seconds=10.0,
)
WITH_PLUGIN = {"process.starts", "process.instance-id", "process.drains", "process.ends"}


def skipped(report: Report) -> set[str]:
    """What was skipped, for its own reasons, by a report in which nothing failed."""
    failed = [each for each in report.outcomes if each.verdict is Verdict.FAILED]
    assert not failed, "\n".join(map(str, failed))
    assert report.passed
    found = {each.name for each in report.outcomes if each.verdict is Verdict.SKIPPED}
    # Each kind of runner skips the checks of the other.
    other = DIALLED_ONLY if found >= DIALLED_ONLY else ATTACHED_ONLY
    assert found >= other
    return found - other


# It answers in pieces of a few characters: what is long takes many of them.
@pytest.mark.timeout(120)
async def test_shipped_echo_passes_every_check_that_is_about_it() -> None:
    report = await check_plugin(shipped_plugins_folder() / "echo", Options(patience=PATIENT))
    assert skipped(report) == {
        # It takes as many runs as come, has `interrupt`, and needs nothing of its host.
        "load.limit",
        "stop.interrupt-unimplemented",
        "tokens.both",
        "tokens.own",
    }


@pytest.mark.timeout(120)
async def test_shipped_local_agent_passes_every_check_that_is_about_it() -> None:
    folder = shipped_plugins_folder() / "local-agent"
    report = await check_plugin(folder, Options(patience=PATIENT))
    # It takes as many runs as come, has `interrupt`, and says what its model says.
    assert skipped(report) == {"input.echo", "load.limit", "stop.interrupt-unimplemented"}


@pytest.mark.parametrize(("form", "limit"), [("waiting", 0), ("blocking", 3)])
async def test_runner_made_with_the_sdk_passes(form: str, limit: int, tmp_path: Path) -> None:
    command = [sys.executable, str(SDK_RUNNERS), form, str(limit)]
    report = await check_plugin(
        write_plugin(tmp_path / form, command, name=form), Options(patience=PATIENT)
    )
    expected = {"input.echo", "stop.interrupt-unimplemented"}
    assert skipped(report) == (expected if limit else expected | {"load.limit"})


async def test_runner_without_any_sdk_passes(tmp_path: Path) -> None:
    report = await check_plugin(raw_plugin(tmp_path / "raw"), Options(patience=PATIENT))
    assert skipped(report) == {"load.limit", "stop.interrupt-unimplemented"}


@pytest.mark.parametrize(("chosen", "other"), [("", "second"), ("second", "default")])
async def test_runners_that_were_not_checked_are_told(chosen: str, other: str) -> None:
    runner = RawRunner("serves_two")
    address = await runner.start()
    try:
        report = await check_address(address, Options(runner=chosen, only=("manifests",)))
    finally:
        await runner.stop()
    assert report.passed
    assert report.runner_id == f"plugin:acme/raw/{chosen or 'default'}"
    assert report.others == (f"plugin:acme/raw/{other}",)


async def test_runner_of_one_run_at_once_passes_at_a_socket() -> None:
    with SocketFolder.create() as sockets:
        runner = RawRunner(max_runs=1, interrupt=False)
        address = await runner.start(f"unix:{sockets.new_path()}")
        try:
            report = await check_address(
                address, Options(expected_plugin="acme/raw", patience=PATIENT)
            )
        finally:
            await runner.stop()
    assert skipped(report) == WITH_PLUGIN | {"stop.interrupt", "stop.interrupt-unknown"}


@pytest.mark.parametrize("calls_host", [False, True])
async def test_runner_that_says_nothing_of_itself_is_caught_at_work_all_the_same(
    calls_host: bool,
) -> None:
    runner = RawRunner(notes=False, max_runs=2, calls_host=calls_host)
    address = await runner.start()
    try:
        report = await check_address(
            address, Options(expected_plugin="acme/raw", echo=True, patience=PATIENT)
        )
    finally:
        await runner.stop()
    # Without a slow configuration and without calls nothing makes a run last.
    unseen = set() if calls_host else {"deadline.timeout", "tokens.both", "tokens.own"}
    assert skipped(report) == WITH_PLUGIN | {"stop.interrupt-unimplemented"} | unseen
