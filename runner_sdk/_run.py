"""One run under way.

::

    Run.start --> producer task: author's code --> ResultWriter --> Outbox
    handler   --> sender: Outbox.take --> gRPC

A run ends by itself, is stopped (an interrupt, its deadline, a shutdown: results are still sent),
or is abandoned (the caller left: nobody reads on). Stopping cancels the producer task; the task,
and nobody else, iterates and closes the author's generator, so that context variables and open
spans never cross tasks.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from runmesh.v1.result_pb2 import RunFailed

from runner_sdk._author import THROWN, Results, results_of
from runner_sdk._outbox import Outbox
from runner_sdk._trace import RunTrace
from runner_sdk._writer import ResultWriter
from runner_sdk.context import RunContext
from runner_sdk.errors import RunFailure
from runner_sdk.runner import AgentRunner, code_of

_logger = logging.getLogger("runner_sdk.run")

# When a cancelled run is first said not to have stopped; each further time waits twice as long.
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run is stopped from outside, and what its stream says of it."""

    reason: str
    code: str
    message: str
    retryable: bool = False


TIMED_OUT = Ending("deadline", "runner.timeout", "the run took longer than it may")
SHUT_DOWN = Ending(
    "shutdown", "runner.unavailable", "the runner's process is shutting down", retryable=True
)


def interrupted(reason: str) -> Ending:
    """Makes the ending of a run that the host interrupts."""
    return Ending(reason or "cancelled", "cancelled", "the run was interrupted")


class Run:
    """One run: the author's code, the results that wait, and its end."""

    def __init__(
        self,
        *,
        runner: AgentRunner,
        context: RunContext,
        trace: RunTrace,
        timeout_seconds: float | None,
        on_finished: Callable[["Run"], None],
    ) -> None:
        self.outbox = Outbox()
        self.finished = asyncio.Event()
        self._runner = runner
        self._context = context
        self._trace = trace
        self._timeout_seconds = timeout_seconds
        self._on_finished = on_finished
        self._writer = ResultWriter(run_id=context.run_id, outbox=self.outbox)
        self._ending: Ending | None = None
        self._abandoned = False
        self._task: asyncio.Task[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._context.run_id

    @property
    def runner(self) -> AgentRunner:
        """Whose run it is."""
        return self._runner

    def start(self) -> None:
        """Starts the author's code."""
        self._task = asyncio.create_task(self._produce(), name=f"run {self.run_id}")
        self._task.add_done_callback(self._conclude)
        if self._timeout_seconds is not None:
            self._call_later(self._timeout_seconds, lambda: self.stop(TIMED_OUT))

    def interrupt(self, reason: str, grace_seconds: float) -> None:
        """Stops the run for the host: a runner that handles interrupts gets the grace first."""
        ending = interrupted(reason)
        if self._runner.handles_interrupt:
            self._context.interrupted.notify(ending.reason)
            self._call_later(grace_seconds, lambda: self.stop(ending))
        else:
            self.stop(ending)

    def stop(self, ending: Ending) -> None:
        """Cancels the author's code; what it still yields is sent, then how the run ended."""
        if self._ending is None and not self._abandoned:
            self._ending = ending
            self._cancel(ending.reason)

    def abandon(self) -> None:
        """Cancels the author's code; nobody reads what it yields."""
        if not self._abandoned and not self.finished.is_set():
            self._abandoned = True
            self.outbox.close(discard=True)
            self._cancel("cancelled")

    def _cancel(self, reason: str) -> None:
        self._context.interrupted.notify(reason)
        if self._task is not None:
            self._task.cancel()
        self._call_later(_PATIENCE_SECONDS, lambda: self._insist(_PATIENCE_SECONDS))

    def _insist(self, waited_seconds: float) -> None:
        if self._task is None or self._task.done():
            return
        _logger.warning(
            "run %s has not stopped %.0f s after it was cancelled", self.run_id, waited_seconds
        )
        self._task.cancel()
        self._call_later(waited_seconds, lambda: self._insist(2 * waited_seconds))

    def _call_later(self, delay_seconds: float, call: Callable[[], None]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(delay_seconds, call))

    async def _produce(self) -> None:
        with self._trace.span(self._runner.name, self.run_id):
            results = results_of(code_of(self._runner), self._context)
            try:
                await self._write_all(results)
            finally:
                await results.aclose()

    async def _write_all(self, results: Results) -> None:
        """The hot path: from the author's yield to the outbox."""
        step: Callable[[], Awaitable[Any]] = results.__anext__
        write = self._writer.write
        while True:
            try:
                result = await step()
            except StopAsyncIteration:
                return
            step = results.__anext__
            if self._writer.over:
                self._note_late_result()
                return
            try:
                if write(result):
                    await self.outbox.pause()
            except THROWN as error:
                # Raised where the author's code stands, at the yield that it is about.
                step = _throw(results, error)

    def _note_late_result(self) -> None:
        if not self._abandoned:
            _logger.warning(
                "run %s: run() yielded after the run's terminal result; that is dropped and run() "
                "is closed: yield ctx.completed() or ctx.failed() last",
                self.run_id,
            )

    def _conclude(self, task: asyncio.Task[None]) -> None:
        for timer in self._timers:
            timer.cancel()
        failure = self._failure_of(task)
        try:
            self._writer.finish(failure)
        finally:
            self.finished.set()
            self._on_finished(self)

    def _failure_of(self, task: asyncio.Task[None]) -> RunFailed | None:
        """Says how the run failed; None where it ended well, or nobody reads on."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        ending = self._ending
        if isinstance(error, RunFailure):
            return RunFailed(
                code=error.code,
                message=error.message,
                retryable=error.retryable,
                details=error.details,
            )
        if error is not None and not isinstance(error, asyncio.CancelledError):
            return self._failure_of_error(error)
        if ending is not None:
            return RunFailed(code=ending.code, message=ending.message, retryable=ending.retryable)
        if error is not None and not self._abandoned:
            return self._failure_of_error(error)
        return None

    def _failure_of_error(self, error: BaseException) -> RunFailed:
        # The traceback is for whoever reads the process's log; the host gets the text alone.
        trace = "".join(traceback.format_exception(error))
        _logger.error("run %s failed in run():\n%s", self.run_id, trace.rstrip())
        return RunFailed(code="runner.error", message=f"{type(error).__name__}: {error}")


def _throw(results: Results, error: BaseException) -> Callable[[], Awaitable[Any]]:
    return lambda: results.athrow(error)
