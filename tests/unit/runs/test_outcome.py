"""Tests of `host_service.runs.outcome`: how a run's end is told, in the contract's words."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from runmesh.v1 import result_pb2

from host_service.runs.outcome import Outcome, RunFault, Stop, ended_by_runner, stopped
from stores.records import Failure, RunStatus
from tests.unit.runs.samples import a_message, a_result


def test_good_end_is_told_as_the_runner_said_it() -> None:
    completed = result_pb2.RunCompleted(finish_reason="stop", message=a_message("bye"))
    outcome = ended_by_runner(a_result(7, run_completed=completed), 7)
    assert (outcome.status, outcome.runner_sequence) == (RunStatus.COMPLETED, 7)
    assert outcome.terminal("run-1") == result_pb2.RunResult(
        run_id="run-1", run_completed=completed
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("runner.error", RunStatus.FAILED),
        ("acme.quota", RunStatus.FAILED),
        ("cancelled", RunStatus.CANCELLED),
    ],
)
def test_bad_end_is_told_as_the_runner_said_it(code: str, status: RunStatus) -> None:
    failed = result_pb2.RunFailed(code=code, message="你", retryable=True, details={"a": "1"})
    outcome = ended_by_runner(a_result(3, run_failed=failed), 3)
    assert outcome.status is status
    assert outcome.failure == Failure(code, "你", retryable=True, details={"a": "1"})
    assert outcome.terminal("run-1").run_failed == failed


@pytest.mark.parametrize(
    ("reason", "status", "code", "retryable"),
    [
        (Stop.CANCELLED, RunStatus.CANCELLED, "cancelled", False),
        (Stop.SHUTDOWN, RunStatus.CANCELLED, "cancelled", True),
        (Stop.DEADLINE, RunStatus.TIMED_OUT, "runner.timeout", False),
        (Stop.STORE, RunStatus.FAILED, "host.unavailable", True),
    ],
)
def test_host_tells_why_it_stopped_a_run(
    reason: Stop, status: RunStatus, code: str, *, retryable: bool
) -> None:
    outcome = stopped(reason, timeout_seconds=1.5)
    assert outcome.status is status
    assert outcome.failure is not None
    assert (outcome.failure.code, outcome.failure.retryable) == (code, retryable)
    terminal = outcome.terminal("run-1").run_failed
    assert (terminal.code, terminal.message) == (code, outcome.failure.message)
    assert outcome.runner_sequence == 0


def test_words_of_whoever_cancelled_are_kept() -> None:
    outcome = stopped(Stop.CANCELLED, said="算了")
    assert outcome.failure is not None
    assert outcome.failure.message == "算了"


def test_deadline_is_told_in_seconds() -> None:
    outcome = stopped(Stop.DEADLINE, timeout_seconds=300)
    assert outcome.failure is not None
    assert "300 s" in outcome.failure.message


def test_every_end_has_exactly_one_terminal_result() -> None:
    outcomes = [stopped(reason) for reason in Stop]
    outcomes += [RunFault("runner.protocol", "x").outcome(), Outcome(RunStatus.FAILED)]
    for outcome in outcomes:
        assert outcome.terminal("run-1").WhichOneof("payload") == "run_failed"
        assert outcome.status.is_terminal


def test_timeout_of_the_runners_own_call_is_the_deadline_as_well() -> None:
    assert RunFault("runner.timeout", "late").outcome().status is RunStatus.TIMED_OUT
    assert RunFault("runner.error", "bad").outcome().status is RunStatus.FAILED


@contextmanager
def _around() -> Iterator[None]:
    yield


def test_fault_passes_through_whatever_is_around_it_and_says_itself() -> None:
    with pytest.raises(RunFault) as raised, _around():
        raise RunFault("runner.protocol", "no terminal result", details={"a": "1"})
    fault = raised.value
    assert "no terminal result" in str(fault)
    assert fault.outcome().failure == Failure(
        "runner.protocol", "no terminal result", details={"a": "1"}
    )
