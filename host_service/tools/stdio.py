"""A tool server as a program: started through a guardian, spoken to in lines of JSON.

::

    session --messages--> writing --lines--> stdin      program
    session <--messages-- reading <--lines-- stdout
                  what is no message --> log   stderr --> log, and a tail for errors

Whatever a program prints on stdout that is no message is passed over: a banner, colours, a byte
order mark, a megabyte of noise.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from host_service.supervisor.child import Child, Exit, Launch
from host_service.supervisor.errors import PluginFailed
from host_service.supervisor.output import LineBudget, OutputStream
from host_service.tools.errors import ServerFailed
from host_service.tools.lines import LineSplitter, LineTooLong
from host_service.tools.mending import mend_escapes
from host_service.tools.transport import Transport

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

_CHUNK_BYTES = 256 * 1024
# Between the end of its input and SIGTERM: a well-behaved server leaves by itself.
_LEAVE_SECONDS = 0.5
_STOP_GRACE_SECONDS = 2.0
# Messages that wait for the session, or for the program to read.
_WAITING = 16


class Spoken(Transport):
    """A program that is spoken to.

    Args:
        child: It.
        noise: What it prints on stdout that is no message.
        message_bytes: How large one of its messages may be.
    """

    def __init__(self, child: Child, noise: OutputStream, *, message_bytes: int) -> None:
        super().__init__()
        self._child = child
        self._noise = noise
        self._lines = LineSplitter(message_bytes)
        incoming = anyio.create_memory_object_stream[SessionMessage | Exception](_WAITING)
        outgoing = anyio.create_memory_object_stream[SessionMessage](_WAITING)
        self._heard: MemoryObjectSendStream[SessionMessage | Exception] = incoming[0]
        self._to_say: MemoryObjectReceiveStream[SessionMessage] = outgoing[1]
        self.streams = (incoming[1], outgoing[0])
        self._ends = (*incoming, *outgoing)

    def last_words(self) -> str:
        """The end of what it wrote to stderr, or else of what it wrote beside its messages."""
        return self._child.tail() or self._noise.tail()

    async def trouble(self) -> str:
        """Why it is over."""
        if self._fault:
            return self._fault
        # Its output has ended; that it has too is known a moment later.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                return f"its process {await asyncio.shield(self._child.ended)}"
        return "it closed its standard output"

    def close(self) -> None:
        """Closes what the session was held over."""
        for end in self._ends:
            end.close()

    async def read(self) -> None:
        """Hands its messages to the session until its output ends."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(self._child.stdout, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while data := await reader.read(_CHUNK_BYTES):
                for line in self._lines.feed(data):
                    await self._take(line)
        except LineTooLong as error:
            self._fault = f"it wrote {error}"
        finally:
            transport.close()
            self._heard.close()
            self.over.set()

    async def _take(self, line: bytes) -> None:
        message = read_message(line)
        if message is None:
            self._noise.feed(line + b"\n", now=asyncio.get_running_loop().time())
            return
        # The session is gone: whatever else comes is for nobody.
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._heard.send(message)

    async def write(self) -> None:
        """Writes the session's messages until it ends, or the program reads no more."""
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        pipe = os.fdopen(self._child.stdin, "wb", buffering=0)
        transport, _ = await loop.connect_write_pipe(lambda: protocol, pipe)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        try:
            async for message in self._to_say:
                writer.write(write_message(message))
                await writer.drain()
        except OSError:
            # It reads no more. Whether it has ended, its output tells.
            pass
        finally:
            transport.abort()


@asynccontextmanager
async def started(
    launch: Launch, *, message_bytes: int, budget: LineBudget
) -> AsyncIterator[Spoken]:
    """Starts a program to be spoken to; leaving the context ends it and all that it started.

    Args:
        launch: What to start.
        message_bytes: How large one of its messages may be.
        budget: How much of what it prints beside goes to the log.

    Raises:
        ServerFailed: It could not be started.
    """
    try:
        child = await Child.start(launch, budget=budget)
    except PluginFailed as error:
        raise ServerFailed(str(error)) from error
    noise = OutputStream(
        plugin_id=launch.plugin_id, name="stdout", budget=budget, hidden=launch.hidden
    )
    spoken = Spoken(child, noise, message_bytes=message_bytes)
    reading = asyncio.create_task(spoken.read(), name=f"read {launch.plugin_id}")
    writing = asyncio.create_task(spoken.write(), name=f"write {launch.plugin_id}")
    try:
        yield spoken
    finally:
        writing.cancel()
        await _end(child)
        reading.cancel()
        await asyncio.gather(reading, writing, return_exceptions=True)
        spoken.close()


async def _end(child: Child) -> None:
    """Lets a program leave now that nothing more is said to it, then ends it."""
    ended: asyncio.Future[Exit] = child.ended
    try:
        await asyncio.wait({ended}, timeout=_LEAVE_SECONDS)
    finally:
        # To its end even where this is cut short: what is left would outlive its server.
        await asyncio.shield(child.stop(_STOP_GRACE_SECONDS))


def read_message(line: bytes) -> SessionMessage | None:
    """Returns the message that a line is; None for any other line."""
    # A message that a banner without an end stands before is one all the same.
    begins = line.find(b"{")
    if begins < 0 or b'"jsonrpc"' not in line:
        return None
    try:
        value = _read_json(line[begins:])
        return SessionMessage(jsonrpc_message_adapter.validate_python(value, by_name=False))
    except (ValueError, RecursionError):
        return None


def _read_json(data: bytes) -> Any:
    text = mend_escapes(data).decode(errors="replace")
    return json.loads(text, parse_constant=lambda _: None)


def write_message(message: SessionMessage) -> bytes:
    """Returns a message as one line."""
    value = message.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
