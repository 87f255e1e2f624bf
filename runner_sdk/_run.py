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
RELOADED = Ending(
    "shutdown",
    "runner.unavailable",
    "the development instance was reloaded or stopped",
    retryable=True,
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
        self._stopped = False
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
        if not self._runner.handles_interrupt:
            self.stop(ending)
        elif not self._stopped:
            # If the code ends without a word of its own, this is how the run ended.
            self._ending = self._ending or ending
            self._context.interrupted.notify(ending.reason)
            self._call_later(grace_seconds, lambda: self.stop(ending))

    def stop(self, ending: Ending) -> None:
        """Cancels the author's code; what it still yields is sent, then how the run ended."""
        if not self._stopped:
            self._stopped = True
            self._ending = self._ending or ending
            self._cancel(ending.reason)

    def abandon(self) -> None:
        """Cancels the author's code; nobody reads what it yields."""
        if not self._abandoned and not self.finished.is_set():
            self._abandoned = self._stopped = True
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
        advance: Callable[[], Awaitable[Any]] = results.__anext__
        write = self._writer.write
        step = advance
        while True:
            try:
                result = await step()
            except StopAsyncIteration:
                return
            step = advance
            try:
                if write(result):
                    if self._writer.over:
                        self._note_late_result()
                        return
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
        try:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            self._writer.finish(self._failure_of(_only(error)))
        finally:
            self.outbox.close()
            self.finished.set()
            self._on_finished(self)

    def _failure_of(self, error: BaseException | None) -> RunFailure | None:
        """Says how the run failed; None where it ended well, or nobody reads on."""
        if isinstance(error, RunFailure):
            return error
        cancelled = isinstance(error, asyncio.CancelledError)
        if self._ending is not None and (error is None or cancelled):
            ending = self._ending
            return RunFailure(ending.code, ending.message, retryable=ending.retryable)
        if error is None or (cancelled and self._abandoned):
            return None
        # The traceback is for whoever reads the process's log; the host gets the text alone.
        lines = "".join(traceback.format_exception(error))
        _logger.error("run %s failed in run():\n%s", self.run_id, lines.rstrip())
        return RunFailure("runner.error", f"{type(error).__name__}: {_text_of(error)}")


def _only(error: BaseException | None) -> BaseException | None:
    """Returns the error itself where a task group has wrapped a single one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error that cannot say what it is must not hide that it is
        return "(it has no readable text)"


def _throw(results: Results, error: BaseException) -> Callable[[], Awaitable[Any]]:
    return lambda: results.athrow(error)
