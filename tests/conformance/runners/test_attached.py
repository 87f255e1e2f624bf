"""Attached runners pass the same checks as dialled ones, and fail those about their stream."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from host_service.conformance import (
    Options,
    Patience,
    Report,
    Unreachable,
    Verdict,
    check_attached,
    check_attached_plugin,
)
from host_service.settings import shipped_plugins_folder
from tests.conformance.runners.attached_runner import AttachedRunner
from tests.conformance.runners.plugin_folders import write_plugin
from tests.conformance.runners.test_good_runners import (
    PATIENT,
    SDK_RUNNERS,
    WITH_PLUGIN,
    skipped,
)

LONG = ("input.text", "results", "attach", "input.large", "stop")
HASTY = Patience(attach_seconds=5.0, run_seconds=5.0, stop_seconds=0.5, grace_seconds=2.0)


def attaching(
    runners: list[AttachedRunner], fault: str = ""
) -> Callable[[Mapping[str, str]], None]:
    """Starts a runner as soon as it is known where it is to attach."""

    def start(environment: Mapping[str, str]) -> None:
        runners.append(
            AttachedRunner(
                environment["RUNMESH_ATTACH"], environment["RUNMESH_ATTACH_TOKEN"], fault
            )
        )

    return start


async def check(options: Options, fault: str = "") -> Report:
    runners: list[AttachedRunner] = []
    try:
        return await check_attached("127.0.0.1:0", options, on_listening=attaching(runners, fault))
    finally:
        for runner in runners:
            await runner.close()


async def test_shipped_echo_passes_when_it_attaches() -> None:
    # It answers in pieces of a few characters: what is large takes very many messages.
    options = Options(skip=("input.large",), patience=PATIENT)
    report = await check_attached_plugin(shipped_plugins_folder() / "echo", options)
    assert skipped(report) == {"load.limit", "tokens.both", "tokens.own"}


async def test_runner_made_with_the_sdk_passes_when_it_attaches(tmp_path: Path) -> None:
    command = [sys.executable, str(SDK_RUNNERS), "blocking", "2"]
    report = await check_attached_plugin(
        write_plugin(tmp_path / "b", command, name="blocking"), Options(patience=PATIENT)
    )
    assert skipped(report) == {"input.echo"}


async def test_runner_without_any_sdk_passes_when_it_attaches() -> None:
    report = await check(Options(expected_plugin="acme/raw", patience=PATIENT))
    assert skipped(report) == WITH_PLUGIN | {"load.limit"}


@pytest.mark.parametrize(
    ("fault", "failed", "got"),
    [
        ("ignores_credit", "attach.credit", "more than were credited"),
        ("second_hello", "attach.credit", "a second hello"),
        ("does_not_come_back", "attach.comes-back", "none"),
        ("picks_version", "attach.hello", "for the host to pick"),
        ("old_version", "attach.hello", "['0']"),
        ("skips_sequence", "results.sequence", "sequence 3"),
        ("hangs_in_interrupt", "stop.interrupt", "DEADLINE_EXCEEDED"),
    ],
)
async def test_fault_of_an_attached_runner_fails_its_own_check(
    fault: str, failed: str, got: str
) -> None:
    report = await check(Options(only=LONG, skip=("input.large",), patience=HASTY), fault)
    told = {each.name: each for each in report.outcomes if each.verdict is Verdict.FAILED}
    assert set(told) == {failed}, told
    assert got in told[failed].got


async def test_runner_with_another_token_is_nobody() -> None:
    runners: list[AttachedRunner] = []

    def start(environment: Mapping[str, str]) -> None:
        runners.append(AttachedRunner(environment["RUNMESH_ATTACH"], "another"))

    options = Options(patience=Patience(attach_seconds=0.5))
    with pytest.raises(Unreachable, match="no runner attached"):
        await check_attached("127.0.0.1:0", options, on_listening=start)
    for runner in runners:
        await runner.close()
