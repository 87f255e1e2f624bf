"""How a run ended, before it is written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from runmesh.v1 import result_pb2

from stores.records import Failure, RunStatus


class Stop(StrEnum):
    """Why the host ends a run that has not ended by itself."""

    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    FOLLOW_UP = "follow_up"
    SHUTDOWN = "shutdown"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        status: A terminal status.
        completed: The runner's last word when it ended well.
        failure: How it failed, when it did.
        runner_sequence: The runner's number of its terminal result; 0 where the host speaks for it.
    """

    status: RunStatus
    completed: result_pb2.RunCompleted | None = None
    failure: Failure | None = None
    runner_sequence: int = 0

    def terminal(self, run_id: str) -> result_pb2.RunResult:
        """Return the terminal result that says so."""
        if self.completed is not None:
            return result_pb2.RunResult(run_id=run_id, run_completed=self.completed)
        failure = self.failure or Failure("runner.error", "the run failed")
        return result_pb2.RunResult(
            run_id=run_id,
            run_failed=result_pb2.RunFailed(
                code=failure.code,
                message=failure.message,
                retryable=failure.retryable,
                details=dict(failure.details),
            ),
        )


_STOPPED = {
    Stop.SHUTDOWN: "the host is shutting down",
    Stop.FOLLOW_UP: "a later message of its session took its place",
}


class RunFault(Exception):
    """The run cannot go on; with the code and text of its failure."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        details: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = dict(details or {})

    def outcome(self) -> Outcome:
        """Return the end that it means."""
        status = RunStatus.TIMED_OUT if self.code == "runner.timeout" else RunStatus.FAILED
        return Outcome(
            status, failure=Failure(self.code, self.message, self.retryable, self.details)
        )


def stopped(reason: Stop, *, said: str = "", timeout_seconds: float = 0) -> Outcome:
    """Return the end of a run that the host stopped."""
    if reason is Stop.DEADLINE:
        return RunFault(
            "runner.timeout", f"the run did not end within {timeout_seconds:g} s"
        ).outcome()
    if reason is Stop.STORE:
        return RunFault(
            "host.unavailable", "what the run said could not be stored", retryable=True
        ).outcome()
    text = said or _STOPPED.get(reason, "the run was cancelled")
    return Outcome(RunStatus.CANCELLED, failure=Failure("cancelled", text, reason is Stop.SHUTDOWN))


def taken_up() -> Outcome:
    """Return the end of a run whose event another run took up."""
    return Outcome(RunStatus.COMPLETED, completed=result_pb2.RunCompleted(finish_reason="steered"))


def ended_by_runner(result: result_pb2.RunResult, runner_sequence: int) -> Outcome:
    """Return the end that a runner's terminal result means."""
    if result.HasField("run_completed"):
        return Outcome(
            RunStatus.COMPLETED, completed=result.run_completed, runner_sequence=runner_sequence
        )
    failed = result.run_failed
    failure = Failure(failed.code, failed.message, failed.retryable, dict(failed.details))
    status = RunStatus.CANCELLED if failed.code == "cancelled" else RunStatus.FAILED
    return Outcome(status, failure=failure, runner_sequence=runner_sequence)
