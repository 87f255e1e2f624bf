"""The results of one run as they come from its runner, however that is reached."""

import asyncio
from typing import Protocol

import grpc

from host_service.registry.frames import Frame

# A process that died takes its connection with it; its end is noticed by the supervisor within this
# time.
_EXIT_NOTICE_SECONDS = 0.2


class RunnerFault(Exception):
    """The stream ended without the runner's own word.

    Attributes:
        code: A run failure code, such as `runner.crashed`.
        message: What happened, for people.
        retryable: Whether the same event might succeed later.
        never_started: Whether the runner cannot have begun, so that another instance may be tried.
        is_busy: Whether it did not begin because it has as many runs as it takes, so that the same
            instance may be tried a little later.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        never_started: bool = False,
        is_busy: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.never_started = never_started
        self.is_busy = is_busy


class RunStream(Protocol):
    """One run at its runner: read frame by frame, its end told as a run failure.

    It is open from when it is made. Who holds one cannot tell how its runner is reached.
    """

    async def read(self) -> Frame | None:
        """Return the next frame, or None at the end.

        Raises:
            RunnerFault: The runner is lost, or ended the run without a result that says so.
        """

    def cancel(self) -> None:
        """Tell the runner that nobody reads on. Nothing where the run has ended."""

    async def interrupt(self, *, run_id: str, reason: str, grace_seconds: float) -> None:
        """Ask the runner to stop; return when it has, or cannot be asked, or the grace is over."""


class Living(Protocol):
    """What can be lost: an instance.

    Attributes:
        lost: Set once the process is gone for good.
    """

    lost: asyncio.Event

    @property
    def problem(self) -> str:
        """Why it is gone, in one line."""


def refused_by_runner(code: grpc.StatusCode, details: str, *, has_begun: bool) -> RunnerFault:
    """Return what a status means that the runner itself ended a run with."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return RunnerFault("runner.timeout", "the runner did not end before the deadline")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return RunnerFault(
            "runner.protocol", f"the runner sent a message over the limit: {details}"
        )
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and not has_begun:
        return RunnerFault(
            "runner.unavailable",
            f"the runner takes no more runs: {details}",
            retryable=True,
            never_started=True,
            is_busy=True,
        )
    if code is grpc.StatusCode.UNAVAILABLE and not has_begun:
        return RunnerFault(
            "runner.unavailable",
            f"the runner takes no more runs: {details}",
            retryable=True,
            never_started=True,
        )
    if code is grpc.StatusCode.NOT_FOUND:
        return RunnerFault(
            "runner.unavailable", f"the process does not serve this runner: {details}"
        )
    return RunnerFault("runner.error", f"the runner's call ended with {code.name}: {details}")


async def lost_on_the_way(instance: Living, details: str) -> RunnerFault:
    """Return what a run's lost connection means: the end of its process, if that is lost too."""
    try:
        await asyncio.wait_for(instance.lost.wait(), _EXIT_NOTICE_SECONDS)
    except TimeoutError:
        return RunnerFault(
            "runner.unavailable",
            f"the connection to the runner was lost: {details}",
            retryable=True,
        )
    return RunnerFault(
        "runner.crashed",
        f"the runner's process ended in the middle of the run: {instance.problem}",
        retryable=True,
    )
