"""An instance that dialled the host: its runs share one stream, and none waits for another.

::

    open_run, interrupt, cancel, credit ──> queue ──> writer ──> the runner
    the runner ──> reader ──> take ──┬── results ──> the run's own buffer ──> read
                                     └── end of a run, answer to an interrupt

The reader never waits for a run: what a run may have waiting is bounded by what its runner was
allowed to send of it.
"""

import asyncio
import contextlib
from collections import deque

import grpc
from google.protobuf.duration_pb2 import Duration
from runmesh.v1 import attach_pb2, run_pb2

from host_service.registry.attach_results import UpResults
from host_service.registry.credit import Credit
from host_service.registry.frames import Frame, FrameReader
from host_service.registry.run_stream import Living, RunnerFault, refused_by_runner

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Attached:
    """Implements `Reach` with a stream that the runner opened.

    Args:
        initial_credit: Results of each run that may come before any of them was read.

    Attributes:
        closed: Set when the host wants nothing more of it.
    """

    def __init__(self, *, initial_credit: int) -> None:
        self.closed = asyncio.Event()
        self._initial_credit = initial_credit
        self._down: asyncio.Queue[tuple[attach_pb2.AttachResponse, AttachedRun | None]] = (
            asyncio.Queue()
        )
        self._runs: dict[str, AttachedRun] = {}
        self._asked: dict[str, asyncio.Event] = {}
        self._lost_by: str | None = None

    # What runs want of it.

    def open_run(
        self,
        instance: Living,  # noqa: ARG002 - whoever ends the stream says what became of it
        request: run_pb2.RunRequest,
        *,
        timeout_seconds: float | None,  # noqa: ARG002 - the request has it, and the host's clock
        metadata: tuple[tuple[str, str], ...],
    ) -> "AttachedRun":
        """Send the run down the stream; see the protocol."""
        run = AttachedRun(
            attached=self,
            run_id=request.context.run_id,
            credit=Credit(initial=self._initial_credit),
        )
        if self._lost_by is not None:
            run.lose(self._lost_by)
            return run
        self._runs[run.run_id] = run
        self._down.put_nowait(
            (attach_pb2.AttachResponse(run=request, metadata=dict(metadata)), run)
        )
        return run

    async def close(self) -> None:
        """Let the stream end."""
        self.closed.set()

    def say(self, message: attach_pb2.AttachResponse) -> None:
        """Send a message down; returns at once."""
        if self._lost_by is None:
            self._down.put_nowait((message, None))

    def forget(self, run: "AttachedRun") -> bool:
        """Expect nothing more of a run; return whether anything was expected."""
        if self._runs.get(run.run_id) is not run:
            return False
        del self._runs[run.run_id]
        return True

    async def interrupt(self, request: run_pb2.InterruptRequest) -> None:
        """Ask for a run's end; return when the runner has answered, or is lost."""
        if self._lost_by is not None:
            return
        answered = self._asked.setdefault(request.run_id, asyncio.Event())
        self.say(attach_pb2.AttachResponse(interrupt=request))
        try:
            await answered.wait()
        finally:
            if self._asked.get(request.run_id) is answered:
                del self._asked[request.run_id]

    # What the stream brings and takes.

    async def next_down(self) -> attach_pb2.AttachResponse:
        """Wait for the next message to send, and return it."""
        while True:
            message, run = await self._down.get()
            if run is None:
                return message
            # A run that was cancelled while it waited to be sent need not be.
            if self._runs.get(run.run_id) is run:
                run.is_sent = True
                return message

    def take(self, up: attach_pb2.AttachRequest | UpResults) -> None:
        """Take in what the runner says of a run; what is said of no run it has is ignored."""
        if isinstance(up, UpResults):
            run = self._runs.get(up.run_id)
            if run is not None:
                run.take(up)
        elif up.HasField("run_ended"):
            ended = self._runs.pop(up.run_ended.run_id, None)
            if ended is not None:
                ended.end(up.run_ended)
        elif up.HasField("interrupt_answer"):
            answered = self._asked.pop(up.interrupt_answer.run_id, None)
            if answered is not None:
                answered.set()

    def lose(self, why: str) -> None:
        """Say that the stream has ended: all runs on it are lost.

        Args:
            why: For people.
        """
        self._lost_by = why
        runs, self._runs = self._runs, {}
        for run in runs.values():
            run.lose(why)
        asked, self._asked = self._asked, {}
        for answered in asked.values():
            answered.set()


class AttachedRun:
    """One run on an attached instance; implements `RunStream`.

    Args:
        attached: The stream that it shares.
        run_id: The run.
        credit: What its runner may send of it.

    Attributes:
        run_id: The run.
        is_sent: Whether its runner may have heard of it.
    """

    def __init__(self, *, attached: Attached, run_id: str, credit: Credit) -> None:
        self.run_id = run_id
        self.is_sent = False
        self._attached = attached
        self._credit = credit
        self._reader = FrameReader()
        self._frames: deque[tuple[Frame, int]] = deque()
        self._has_begun = False
        self._is_over = False
        self._fault: RunnerFault | None = None
        self._news: asyncio.Future[None] | None = None

    async def read(self) -> Frame | None:
        """Return the next frame, or None at the end; see the protocol."""
        while not self._frames and not self._is_over:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if self._frames:
            frame, count = self._frames.popleft()
            more = self._credit.give_back(count)
            if more and not self._is_over:
                credit = attach_pb2.AttachCredit(run_id=self.run_id, results=more)
                self._attached.say(attach_pb2.AttachResponse(credit=credit))
            return frame
        rest = self._reader.rest()
        if rest is None and self._fault is not None:
            raise self._fault
        return rest

    def cancel(self) -> None:
        """Tell the runner that nobody reads on."""
        self._frames.clear()
        self._end_here("nobody reads on")

    async def interrupt(self, *, run_id: str, reason: str, grace_seconds: float) -> None:
        """Ask the runner to stop; see the protocol."""
        grace = Duration()
        grace.FromNanoseconds(round(grace_seconds * 1e9))
        request = run_pb2.InterruptRequest(run_id=run_id, reason=reason, grace=grace)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._attached.interrupt(request)

    # For the stream.

    def take(self, results: UpResults) -> None:
        """Keep results until they are read."""
        self._has_begun = True
        if not self._credit.take(results.count, len(results.data)):
            self._fault = RunnerFault(
                "runner.protocol",
                "the runner sent more results than it was allowed: it must wait for credit",
            )
            self._end_here("more results than were allowed")
            return
        self._frames.append((results.frame(self._reader), results.count))
        self._wake()

    def end(self, ended: attach_pb2.AttachRunEnded) -> None:
        """The runner will send nothing more."""
        code = _CODES.get(ended.status_code, grpc.StatusCode.UNKNOWN)
        if code is not grpc.StatusCode.OK:
            self._fault = self._explain(code, ended.status_message)
        self._finish()

    def lose(self, why: str) -> None:
        """The stream has ended."""
        if self.is_sent:
            self._fault = RunnerFault(
                "runner.crashed",
                f"the runner's process ended in the middle of the run: {why}",
                retryable=True,
            )
        else:
            self._fault = RunnerFault(
                "runner.unavailable",
                "the runner's process could not be reached",
                retryable=True,
                never_started=True,
            )
        self._finish()

    def _explain(self, code: grpc.StatusCode, details: str) -> RunnerFault:
        lost = code is grpc.StatusCode.UNAVAILABLE and self._has_begun
        if lost or code is grpc.StatusCode.CANCELLED:
            return RunnerFault(
                "runner.unavailable", f"the runner gave the run up: {details}", retryable=True
            )
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return RunnerFault("runner.protocol", "the process does not run runs")
        return refused_by_runner(code, details, has_begun=self._has_begun)

    def _end_here(self, reason: str) -> None:
        if self._attached.forget(self) and self.is_sent:
            cancel = attach_pb2.AttachCancel(run_id=self.run_id, reason=reason)
            self._attached.say(attach_pb2.AttachResponse(cancel=cancel))
        self._finish()

    def _finish(self) -> None:
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)
