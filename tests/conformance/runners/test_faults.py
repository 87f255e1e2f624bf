"""The kit finds each fault, in the one check that is about it, and blames no other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from host_service.conformance import (
    CHECKS,
    Options,
    Outcome,
    Patience,
    Report,
    Verdict,
    check_address,
    check_plugin,
)
from host_service.conformance.check import Reach
from tests.conformance.runners.plugin_folders import raw_plugin
from tests.conformance.runners.raw_runner import RawRunner

# Made for every fault beside those that it is about: most faults must not show in them.
USUAL = ("handshake", "manifests", "input.text", "input.empty", "results", "hosts.unknown-runner")
HASTY = Patience(
    connect_seconds=2.0,
    answer_seconds=2.0,
    run_seconds=3.0,
    stop_seconds=0.5,
    grace_seconds=2.5,
    health_seconds=1.0,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A runner that is broken in one way.

    Attributes:
        name: What it does wrong.
        failed: The checks that must fail, and no others.
        got: What the first of them must say of it.
        also: Further checks that are made.
        max_runs: What it says that it takes.
        interrupt: Whether it has the capability.
    """

    name: str
    failed: tuple[str, ...]
    got: str
    also: tuple[str, ...] = ()
    max_runs: int = 0
    interrupt: bool = True

    def __str__(self) -> str:
        return self.name


# Served in the test's own process.
FAULTS = (
    Fault("no_plugin_version", ("handshake.answers",), "plugin_version"),
    Fault("other_plugin_id", ("handshake.plugin-id", "manifests.rules"), "'acme/other'"),
    Fault("takes_first_version", ("handshake.version", "handshake.no-common-version"), "'2'"),
    Fault("speaks_anything", ("handshake.no-common-version",), "'1'"),
    Fault("version_error", ("handshake.no-common-version",), "FAILED_PRECONDITION"),
    Fault(
        "new_instance_id", ("handshake.repeated", "handshake.settings", "handshake.tolerates"), "'"
    ),
    Fault("settings_change_it", ("handshake.settings",), "settings"),
    Fault("strict_handshake", ("handshake.tolerates",), "INVALID_ARGUMENT"),
    Fault("lists_nothing", ("manifests.listed",), "an empty list"),
    Fault("invalid_manifest", ("manifests.rules",), "'another'"),
    Fault("manifest_of_other_plugin", ("manifests.rules",), "'acme/other'"),
    Fault("lists_instances", ("manifests.only",), "1 instances"),
    Fault("manifest_changes", ("handshake.settings", "manifests.repeated"), "where"),
    Fault("no_health", ("health.serving",), "UNIMPLEMENTED", also=("health.serving",)),
    Fault("not_serving", ("health.serving",), "UNKNOWN", also=("health.serving",)),
    Fault("ill_while_busy", ("health.busy",), "NOT_SERVING", also=("health",)),
    Fault("no_reflection", ("reflection.describes",), "UNIMPLEMENTED", also=("reflection",)),
    Fault(
        "reflection_forgets", ("reflection.describes",), "DiscoveryService", also=("reflection",)
    ),
    Fault("fails_on_astral", ("input.unicode",), "INTERNAL: something", also=("input.unicode",)),
    Fault(
        "fails_on_unknown_fields",
        ("input.unknown-fields",),
        "INTERNAL",
        also=("input.unknown-fields", "input.unknown-numbers"),
    ),
    Fault(
        "fails_on_unknown_numbers",
        ("input.unknown-numbers",),
        "INTERNAL",
        also=("input.unknown-fields", "input.unknown-numbers"),
    ),
    Fault("needs_an_actor", ("input.minimal",), "INTERNAL", also=("input.minimal", "input.full")),
    Fault(
        "fails_on_large_numbers", ("input.full",), "INTERNAL", also=("input.minimal", "input.full")
    ),
    Fault(
        "never_ends_without_text",
        ("input.empty", "input.events"),
        "0 results, and no end",
        also=("input.events",),
    ),
    Fault("normalizes", ("input.echo",), "where", also=("input.echo",)),
    Fault("drops_mark", ("input.echo",), "where '\\ufeff", also=("input.echo",)),
    Fault("strips", ("input.echo",), "where", also=("input.echo",)),
    Fault("runs_anything", ("hosts.unknown-runner",), "OK"),
    Fault("keeps_address", ("hosts.two", "tokens.own"), "another host", also=("hosts", "tokens")),
    Fault("fails_on_replays", ("hosts.replayed",), "INTERNAL", also=("hosts", "tokens")),
    Fault("keeps_tokens", ("tokens.own", "hosts.two"), "another host", also=("hosts", "tokens")),
    Fault(
        "keeps_instance_token", ("tokens.own",), "with an instance token", also=("hosts", "tokens")
    ),
    Fault("no_run_token", ("tokens.both",), "without `authorization", also=("hosts", "tokens")),
    Fault(
        "no_instance_token", ("tokens.both",), "without `runmesh-instance", also=("hosts", "tokens")
    ),
    Fault("unsaid_limit", ("load.at-once",), "RESOURCE_EXHAUSTED", also=("load.at-once",)),
    Fault("takes_too_many", ("load.limit",), "OK", also=("load.limit",), max_runs=2),
    Fault("takes_too_few", ("load.limit",), "RESOURCE_EXHAUSTED", also=("load.limit",), max_runs=3),
    Fault(
        "ignores_cancel",
        ("stop.cancelled-call", "deadline.call"),
        "was_active true",
        also=("stop.cancelled-call", "deadline.call"),
    ),
    Fault(
        "ignores_cancel",
        ("stop.cancelled-call", "deadline.call"),
        "RESOURCE_EXHAUSTED",
        also=("stop.cancelled-call", "deadline.call"),
        max_runs=1,
        interrupt=False,
    ),
    Fault("hangs_in_interrupt", ("stop.interrupt",), "DEADLINE_EXCEEDED", also=("stop",)),
    Fault(
        "interrupt_fails",
        ("stop.interrupt", "stop.interrupt-unknown", "stop.cancelled-call"),
        "INTERNAL",
        also=("stop",),
    ),
    Fault("interrupt_only_answers", ("stop.interrupt",), "still open", also=("stop",)),
    Fault("interrupt_wrong_code", ("stop.interrupt",), "'acme.stopped'", also=("stop",)),
    Fault(
        "interrupt_no_end", ("stop.interrupt", "results.terminal"), "none terminal", also=("stop",)
    ),
    Fault("denies_active", ("stop.interrupt",), "was_active false", also=("stop.interrupt",)),
    Fault(
        "always_active",
        ("stop.interrupt", "stop.interrupt-unknown"),
        "was_active true",
        also=("stop.interrupt", "stop.interrupt-unknown"),
    ),
    Fault(
        "unsaid_interrupt",
        ("stop.interrupt-unimplemented",),
        "an answer",
        also=("stop",),
        interrupt=False,
    ),
    Fault("ignores_timeout", ("deadline.timeout",), "still open", also=("deadline",)),
    Fault("status_for_failure", ("input.text", "input.empty"), "INTERNAL"),
    Fault("empty_frame", ("results.readable",), "none in frame"),
    Fault("wrong_run_id", ("results.run-id",), "'another'"),
    Fault("skips_sequence", ("results.sequence",), "sequence 3"),
    Fault("starts_at_zero", ("results.sequence",), "sequence 0"),
    Fault("first_sequence", ("results.first-sequence",), "1"),
    Fault("no_terminal", ("results.terminal",), "none of them terminal"),
    Fault("two_terminals", ("results.one-terminal",), "2 (run_completed, run_completed)"),
    Fault("after_terminal", ("results.nothing-after",), "message_delta after it"),
    Fault("zero_text", ("results.fields",), "U+0000"),
    Fault("no_payload", ("results.fields",), "result 1"),
    Fault("oversized_result", ("results.size",), "1,048,"),
    Fault("oversized_frame", ("results.frame-size",), "3,600,"),
    Fault("says_nothing", ("results.something-said",), "nothing at all"),
    Fault("unsaid_deltas", ("results.streaming",), "message_delta"),
)

# Started by the kit: what only a process of its own can do wrong.
PROCESS_FAULTS = (
    Fault("does_not_listen", ("process.starts",), "there is no such thing"),
    Fault("settings_in_file", ("handshake.settings",), "written by a handshake"),
    Fault("blocks", ("health.busy",), "DEADLINE_EXCEEDED", also=("health",)),
    Fault("dies_on_empty", ("input.empty",), "UNAVAILABLE"),
    Fault("dies_on_large", ("input.large",), "UNAVAILABLE", also=("input.large",)),
    Fault("floods_memory", ("load.slow-reader",), "MiB more", also=("load.slow-reader",)),
    Fault("same_instance_id", ("process.instance-id",), "'always'", also=("process.instance-id",)),
    Fault("dies_at_sigterm", ("process.drains",), "ended at once", also=("process",)),
    Fault("drops_runs", ("process.drains",), "ended at once", also=("process",)),
    Fault("takes_runs_draining", ("process.drains",), "OK for another run", also=("process",)),
    Fault("serves_on_sigterm", ("process.drains", "process.ends"), "SERVING", also=("process",)),
    Fault("fails_at_end", ("process.drains", "process.ends"), "code 3", also=("process",)),
)


def options_for(fault: Fault) -> Options:
    return Options(expected_plugin="acme/raw", only=(*USUAL, *fault.also), patience=HASTY)


def must_find(report: Report, fault: Fault) -> None:
    told = {each.name: each for each in report.outcomes if each.verdict is Verdict.FAILED}
    assert sorted(report.failed) == sorted(fault.failed), "\n".join(map(str, told.values()))
    first = told[fault.failed[0]]
    assert fault.got in first.got, first
    assert first.expected, first
    assert first.advice, first


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Serves raw runners, and ends them after the test."""
    served: list[RawRunner] = []

    async def start(runner: RawRunner) -> str:
        served.append(runner)
        return await runner.start()

    yield start
    for runner in served:
        await runner.stop()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_fault_fails_its_own_check(
    fault: Fault, serve: Callable[..., Awaitable[str]]
) -> None:
    runner = RawRunner(fault.name, max_runs=fault.max_runs, interrupt=fault.interrupt)
    report = await check_address(await serve(runner), options_for(fault))
    must_find(report, fault)


@pytest.mark.parametrize("fault", PROCESS_FAULTS, ids=str)
async def test_fault_of_a_process_fails_its_own_check(fault: Fault, tmp_path: Path) -> None:
    folder = raw_plugin(tmp_path / "raw", fault.name)
    report = await check_plugin(folder, options_for(fault))
    must_find(report, fault)


def test_every_check_is_seen_to_fail() -> None:
    found = {name for fault in (*FAULTS, *PROCESS_FAULTS) for name in fault.failed}
    dialled = {check.name for check in CHECKS if check.reach is not Reach.ATTACHED}
    assert dialled - found == set()


async def test_checks_after_a_death_are_made_on_a_new_process(tmp_path: Path) -> None:
    folder = raw_plugin(tmp_path / "raw", "dies_on_empty")
    told: list[Outcome] = []
    options = Options(only=("input.empty", "input.minimal", "input.text"), patience=HASTY)
    report = await check_plugin(folder, options, told.append)
    assert [(each.name, each.verdict) for each in told] == [
        ("process.starts", Verdict.OK),
        ("input.text", Verdict.OK),
        ("input.empty", Verdict.FAILED),
        # Its input has no text either.
        ("input.minimal", Verdict.FAILED),
    ]
    assert report.outcomes == tuple(told)


async def test_checks_after_a_loss_are_skipped_and_name_it(
    serve: Callable[..., Awaitable[str]],
) -> None:
    runner = RawRunner()
    address = await serve(runner)

    async def end() -> None:
        await runner.stop()

    told: list[Outcome] = []

    def on_outcome(outcome: Outcome) -> None:
        told.append(outcome)
        if outcome.name == "input.empty":
            tasks.append(asyncio.ensure_future(end()))

    tasks: list[asyncio.Future[None]] = []
    options = Options(
        only=("input.text", "input.empty", "input.events", "input.full"), patience=HASTY
    )
    await check_address(address, options, on_outcome)
    assert [each.verdict for each in told[:2]] == [Verdict.OK, Verdict.OK]
    assert told[2].verdict is Verdict.FAILED
    assert told[3].verdict is Verdict.SKIPPED
    assert "since input.events" in told[3].remark
