"""One stream to a host: runs come down it, their results go up, and none waits for another.

::

    reader ──┬── run: a task each: Outbox.take_pieces, as far as credit goes ──┐
             ├── credit, cancel: to the run's task                             ├──> queue ──> writer
             └── interrupt: stops a run, answers when its code has ended ──────┘

A run without credit takes nothing from its outbox, which fills and holds its author back; nobody
else hears of it.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import aio
from runmesh.v1 import attach_pb2, discovery_pb2, run_pb2

from runner_sdk._run import Run
from runner_sdk._servicer import Refused, RunServicer
from runner_sdk._wire import FRAME_BYTES, varint
from runner_sdk.errors import ServeError

# Few: what waits here is no more the run's own.
_WAITING_MESSAGES = 8
# What a message has around the results in it: a run's id of at most 255 bytes, tags, lengths.
_AROUND_BYTES = 300
_RESULTS = b"\x12"  # field 2 of AttachRequest and of AttachResults, length-delimited
_RUN_ID = b"\x0a"  # field 1 of AttachResults


class _Credit:
    """What may still be sent of one run."""

    def __init__(self, results: int) -> None:
        self._results = results
        self._news: asyncio.Future[None] | None = None

    def add(self, results: int) -> None:
        self._results += results
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def spend(self, results: int) -> None:
        self._results -= results

    async def some(self) -> int:
        """Waits until something may be sent, and returns how many results."""
        while self._results <= 0:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        return self._results


class AttachedStream:
    """Serves one stream, from its hello to its end.

    Args:
        call: The call of `AttachService.Attach`; its messages are bytes.
        runs: Runs runs.
    """

    def __init__(self, *, call: Any, runs: RunServicer) -> None:
        self._call = call
        self._runs = runs
        self._up: asyncio.Queue[bytes] = asyncio.Queue(_WAITING_MESSAGES)
        self._initial_credit = 0
        self._credits: dict[str, _Credit] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._others: set[asyncio.Task[None]] = set()

    async def greet(self, hello: attach_pb2.AttachHello) -> discovery_pb2.HandshakeRequest:
        """Says hello and waits for the welcome; returns what the host says of itself.

        Raises:
            AioRpcError: The host is away, or refuses.
        """
        await self._call.write(attach_pb2.AttachRequest(hello=hello).SerializeToString())
        answer = await self._read()
        if answer is None or not answer.HasField("welcome"):
            raise ServeError("attach: what answers is no host: it sent no welcome")
        self._initial_credit = answer.welcome.initial_credit
        return answer.welcome.host

    async def serve(self) -> None:
        """Serves until the host ends the stream; what is still under way then is abandoned.

        Raises:
            AioRpcError: How it ended, unless the host closed it in peace.
        """
        writer = asyncio.create_task(self._write(), name="attach writer")
        try:
            while (message := await self._read()) is not None:
                self._heed(message)
        finally:
            tasks = [writer, *self._sending.values(), *self._others]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def say_draining(self) -> None:
        """Tells the host that no more runs are taken."""
        health = attach_pb2.AttachHealth(serving=False)
        self._begin(self._say(attach_pb2.AttachRequest(health=health)))

    async def finish(self, flush_seconds: float) -> None:
        """Sends what waits, and closes this side of the stream."""
        try:
            async with asyncio.timeout(flush_seconds):
                await self._up.join()
                await self._call.done_writing()
                await self._call.code()
        except (TimeoutError, aio.AioRpcError, asyncio.InvalidStateError):
            # Gone, or slow: there is nothing more to say.
            return

    async def _read(self) -> attach_pb2.AttachResponse | None:
        data = await self._call.read()
        if not isinstance(data, bytes):
            return None
        try:
            return attach_pb2.AttachResponse.FromString(data)
        except DecodeError as error:
            raise ServeError("attach: the host sent what cannot be read") from error

    async def _write(self) -> None:
        while True:
            data = await self._up.get()
            try:
                await self._call.write(data)
            except (aio.AioRpcError, asyncio.InvalidStateError):
                # The reader hears how the stream ended.
                return
            finally:
                self._up.task_done()

    def _heed(self, message: attach_pb2.AttachResponse) -> None:
        match message.WhichOneof("message"):
            case "run":
                run_id = message.run.context.run_id
                task = asyncio.create_task(self._run(message.run, dict(message.metadata)))
                self._sending[run_id] = task
                task.add_done_callback(lambda done: self._forget(run_id, done))
            case "credit":
                credit = self._credits.get(message.credit.run_id)
                if credit is not None:
                    credit.add(message.credit.results)
            case "cancel":
                sending = self._sending.get(message.cancel.run_id)
                if sending is not None:
                    sending.cancel()
            case "interrupt":
                self._begin(self._interrupt(message.interrupt))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    def _forget(self, run_id: str, task: asyncio.Task[None]) -> None:
        if self._sending.get(run_id) is task:
            del self._sending[run_id]

    async def _run(self, request: run_pb2.RunRequest, metadata: dict[str, str]) -> None:
        run_id = request.context.run_id
        try:
            run = self._runs.accept(request, metadata=metadata.items())
        except Refused as refused:
            await self._end(run_id, refused.status.code, refused.status.details)
            return
        credit = self._credits[run_id] = _Credit(self._initial_credit)
        try:
            await self._send(run, credit)
            await self._end(run_id, grpc.StatusCode.OK, "")
        except BaseException:
            # The host wants no more of it, or the stream is gone.
            run.abandon()
            raise
        finally:
            del self._credits[run_id]
            self._runs.let_go(run)

    async def _send(self, run: Run, credit: _Credit) -> None:
        head = _RUN_ID + _sized(run.run_id.encode())
        while True:
            most = await credit.some()
            pieces = await run.outbox.take_pieces(most, most_bytes=FRAME_BYTES - _AROUND_BYTES)
            if not pieces:
                return
            credit.spend(len(pieces))
            # A piece is a field of a `RunResponse`; in this message the same field has number 2.
            results = b"".join(_RESULTS + piece[1:] for piece in pieces)
            await self._up.put(_RESULTS + _sized(head + results))

    async def _end(self, run_id: str, code: grpc.StatusCode, message: str) -> None:
        ended = attach_pb2.AttachRunEnded(
            run_id=run_id, status_code=code.value[0], status_message=message
        )
        await self._say(attach_pb2.AttachRequest(run_ended=ended))

    async def _interrupt(self, request: run_pb2.InterruptRequest) -> None:
        try:
            was_active = await self._runs.stop_run(request)
        except Refused:
            # The host's next step is the same: it cancels the run.
            was_active = request.run_id in self._sending
        answer = attach_pb2.AttachInterruptAnswer(run_id=request.run_id, was_active=was_active)
        await self._say(attach_pb2.AttachRequest(interrupt_answer=answer))

    async def _say(self, message: attach_pb2.AttachRequest) -> None:
        await self._up.put(message.SerializeToString())


def _sized(content: bytes) -> bytes:
    return varint(len(content)) + content
