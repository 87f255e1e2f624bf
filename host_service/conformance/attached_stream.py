"""One stream that a runner opened: runs go down, results come up, credit is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from runmesh.v1 import attach_pb2, discovery_pb2, run_pb2

# Few enough that a runner which does not wait for credit is found out by a long answer.
_INITIAL_CREDIT = 256
# A message for every result would cost as much as the results.
_LEAST_CREDIT = 64

_Up = attach_pb2.AttachResults | attach_pb2.AttachRunEnded


class Lost(Exception):
    """The stream has ended."""


class AttachedStream:
    """The stream of one attached instance.

    Args:
        hello: What the runner said first.
        note: Told of what the contract does not allow.

    Attributes:
        is_serving: What the runner says of its health.
        ended: Set to end the stream from here.
    """

    def __init__(self, hello: attach_pb2.AttachHello, *, note: Callable[[str], None]) -> None:
        self.hello = hello
        self.is_serving = True
        self.ended = asyncio.Event()
        self._note = note
        self._down: asyncio.Queue[attach_pb2.AttachResponse] = asyncio.Queue()
        self._runs: dict[str, BridgedRun] = {}
        self._asked: dict[str, list[asyncio.Future[bool]]] = {}
        host = discovery_pb2.HandshakeRequest(
            host_id="conformance-attach", host_version="0", protocol_versions=["1"]
        )
        welcome = attach_pb2.AttachWelcome(
            host=host, protocol_version="1", initial_credit=_INITIAL_CREDIT
        )
        self.say(attach_pb2.AttachResponse(welcome=welcome))

    def say(self, message: attach_pb2.AttachResponse) -> None:
        """Sends a message down; returns at once."""
        self._down.put_nowait(message)

    async def write_all(self, write: Callable[[Any], Awaitable[None]]) -> None:
        """Writes what is said, for as long as the stream lasts."""
        while True:
            await write(await self._down.get())

    def end(self) -> None:
        """Ends the stream."""
        self.ended.set()

    def lose(self) -> None:
        """Tells everybody who waits that nothing comes any more."""
        for run in self._runs.values():
            run.put(None)
        for futures in self._asked.values():
            for future in futures:
                if not future.done():
                    future.set_result(False)

    def open(self, request: run_pb2.RunRequest, metadata: Mapping[str, str]) -> BridgedRun:
        """Sends a run down."""
        run = BridgedRun(self, request.context.run_id)
        self._runs[run.run_id] = run
        self.say(attach_pb2.AttachResponse(run=request, metadata=metadata))
        return run

    def forget(self, run: BridgedRun) -> None:
        """Expects nothing more of a run."""
        if self._runs.get(run.run_id) is run:
            del self._runs[run.run_id]

    async def interrupt(self, request: run_pb2.InterruptRequest) -> bool:
        """Interrupts a run; returns what the runner answers."""
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(request.run_id, []).append(answered)
        self.say(attach_pb2.AttachResponse(interrupt=request))
        return await answered

    def take(self, message: attach_pb2.AttachRequest) -> None:
        """Takes in what the runner says."""
        kind = message.WhichOneof("message")
        if kind == "results":
            run = self._runs.get(message.results.run_id)
            if run is not None:
                self._count(run, len(message.results.results))
                run.put(message.results)
        elif kind == "run_ended":
            run = self._runs.pop(message.run_ended.run_id, None)
            if run is not None:
                run.put(message.run_ended)
        elif kind == "interrupt_answer":
            for future in self._asked.pop(message.interrupt_answer.run_id, []):
                if not future.done():
                    future.set_result(message.interrupt_answer.was_active)
        elif kind == "health":
            self.is_serving = message.health.serving
        elif kind == "hello":
            self._note("a second hello")

    def _count(self, run: BridgedRun, results: int) -> None:
        run.allowed -= results
        if run.allowed < 0:
            self._note(
                f"{-run.allowed} results of a run more than were credited, "
                f"of {_INITIAL_CREDIT} at first"
            )


class BridgedRun:
    """One run on the stream.

    Args:
        stream: The stream.
        run_id: The run.

    Attributes:
        allowed: How many results may still come.
    """

    def __init__(self, stream: AttachedStream, run_id: str) -> None:
        self.run_id = run_id
        self.allowed = _INITIAL_CREDIT
        self._stream = stream
        self._read = 0
        self._waiting: asyncio.Queue[_Up | None] = asyncio.Queue()

    def put(self, up: _Up | None) -> None:
        """Keeps what came until it is read; None: nothing comes any more."""
        self._waiting.put_nowait(up)

    async def next(self) -> _Up:
        """Returns what came next.

        Raises:
            Lost: The stream has ended.
        """
        up = await self._waiting.get()
        if up is None:
            raise Lost
        return up

    def give_back(self, results: int) -> None:
        """Allows as many results as were read, many at a time."""
        self._read += results
        if self._read < _LEAST_CREDIT:
            return
        credit = attach_pb2.AttachCredit(run_id=self.run_id, results=self._read)
        self.allowed, self._read = self.allowed + self._read, 0
        self._stream.say(attach_pb2.AttachResponse(credit=credit))

    def cancel(self) -> None:
        """Tells the runner that nobody reads on."""
        self._stream.forget(self)
        cancel = attach_pb2.AttachCancel(run_id=self.run_id, reason="nobody reads on")
        self._stream.say(attach_pb2.AttachResponse(cancel=cancel))
