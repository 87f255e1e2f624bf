"""One run that the kit started: what was asked, what came back, and how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
from runmesh.v1 import result_pb2, run_pb2

from host_service.conformance.host_api import Grant
from host_service.registry.frames import Frame, FrameReader

_METHOD = "/runmesh.v1.RunService/Run"
TERMINAL = frozenset({"run_completed", "run_failed"})


class RecordedRun:
    """A run under way, read by a task of its own as fast as `reading` allows.

    Args:
        label: What it is for, to tell of it.
        request: The run.
        grant: Its tokens.
        channel: The connection to the runner.
        deadline_seconds: The call's gRPC deadline; None: none.

    Attributes:
        frames: What came, in order.
        reading: Cleared to leave what comes unread.
        ended: Set when the stream has ended.
        status: How it ended; None while it has not.
        details: What the status says.
        cancelled: Whether the kit cancelled the call.
        first_frame: Set when something has come.
    """

    def __init__(
        self,
        *,
        label: str,
        request: run_pb2.RunRequest,
        grant: Grant,
        channel: grpc.aio.Channel,
        deadline_seconds: float | None,
        reads: bool,
    ) -> None:
        self.label = label
        self.request = request
        self.grant = grant
        self.frames: list[Frame] = []
        self.reading = asyncio.Event()
        self.ended = asyncio.Event()
        self.first_frame = asyncio.Event()
        self.status: grpc.StatusCode | None = None
        self.details = ""
        self.cancelled = False
        self.started_at = time.monotonic()
        self.ended_at = 0.0
        if reads:
            self.reading.set()
        self._reader = FrameReader()
        self._results: list[result_pb2.RunResult] | None = None
        open_call = channel.unary_stream(
            _METHOD,
            request_serializer=run_pb2.RunRequest.SerializeToString,
            response_deserializer=self._reader.read,
        )
        self._call: Any = open_call(request, timeout=deadline_seconds)
        self._task = asyncio.create_task(self._read(), name=f"read {label}")

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.request.context.run_id

    @property
    def results(self) -> list[result_pb2.RunResult]:
        """Every result that came, in order; counted once more only while there may be others."""
        if self._results is not None:
            return self._results
        results = [result for frame in self.frames for result in _results(frame)]
        if self.ended.is_set():
            self._results = results
        return results

    @property
    def terminal(self) -> result_pb2.RunResult | None:
        """The first terminal result; None: there was none."""
        ends = (each for each in self.results if each.WhichOneof("payload") in TERMINAL)
        return next(ends, None)

    @property
    def size_bytes(self) -> int:
        """The size of all that came."""
        return sum(frame.size_bytes for frame in self.frames)

    @property
    def text(self) -> str:
        """What the runner said: its messages, or its deltas where there are none."""
        results = self.results
        messages = [
            each.message_completed.message for each in results if each.HasField("message_completed")
        ] or [
            each.run_completed.message for each in results if each.run_completed.HasField("message")
        ]
        if messages:
            return "".join(part.text for message in messages for part in message.parts)
        return "".join(
            each.message_delta.text for each in results if each.HasField("message_delta")
        )

    async def is_refused(self) -> bool:
        """Whether it was refused for now, told without reading: the runner has no slot free."""
        if not self._call.done():
            return False
        code = await self._call.code()
        return code is grpc.StatusCode.RESOURCE_EXHAUSTED and not self.frames

    async def end(self, timeout_seconds: float) -> bool:
        """Waits for the stream's end; False: it did not come in time."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.ended.wait()
        except TimeoutError:
            return False
        return True

    def cancel(self) -> None:
        """Tells the runner that nobody reads on."""
        self.cancelled = True
        self._call.cancel()
        # Whoever does not read does not hear of the end either.
        self.reading.set()

    async def close(self) -> None:
        """Cancels the call if it has not ended."""
        if not self.ended.is_set():
            self.cancel()
        await asyncio.wait({self._task})

    async def _read(self) -> None:
        try:
            while True:
                await self.reading.wait()
                frame = await self._call.read()
                if frame is grpc.aio.EOF:
                    break
                self.frames.append(frame)
                self.first_frame.set()
            self.status = await self._call.code()
            self.details = await self._call.details() or ""
        except grpc.aio.AioRpcError as error:
            self.status, self.details = error.code(), error.details() or ""
        except asyncio.CancelledError:
            # The call was cancelled, by the kit itself: this task never is.
            self.status = grpc.StatusCode.CANCELLED
        rest = self._reader.rest()
        if rest is not None:
            self.frames.append(rest)
        self.ended_at = self.grant.ended_at = time.monotonic()
        self.ended.set()


def _results(frame: Frame) -> Iterator[result_pb2.RunResult]:
    if frame.response is not None:
        yield from frame.response.results
