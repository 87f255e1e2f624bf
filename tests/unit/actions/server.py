"""A real HTTP server whose answers a test writes itself, faults included."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Received:
    """One request."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class HookServer:
    """Takes requests and gives the answer that stands here.

    Attributes:
        url: Where it listens.
        answer: Writes the answer, once a request was read.
        received: The requests so far.
        arrived: Set when there is one.
        left: Set when a connection was closed by either side, and the answer is at its end.
    """

    url: str = ""
    answer: Answer | None = None
    received: list[Received] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def answers(self, text: str | bytes) -> None:
        """Answer with these bytes from now on, and close."""
        content = text.encode() if isinstance(text, str) else text

        async def write(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(content)
            await writer.drain()

        self.answer = write

    def replies(self, status: int, body: str | bytes = b"", *headers: str) -> None:
        """Answer with a status and a body of a known length."""
        content = body.encode() if isinstance(body, str) else body
        lines = [f"HTTP/1.1 {status} Word", f"Content-Length: {len(content)}", *headers, "", ""]
        self.answers("\r\n".join(lines).encode() + content)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = (line.split(": ", 1) for line in head[1:] if line)
            headers = {name.lower(): value for name, value in pairs}
            body = await reader.readexactly(int(headers["content-length"]))
            self.received.append(Received(head[0], headers, body))
            self.arrived.set()
            if self.answer is not None:
                await self.answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.left.set()
            writer.close()


@asynccontextmanager
async def hook_server(**options: Any) -> AsyncIterator[HookServer]:
    """A server on a free port of this machine."""
    served = HookServer()
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, **options)
    port = server.sockets[0].getsockname()[1]
    served.url = f"http://127.0.0.1:{port}/hooks/desk?room=1"
    served.replies(200)
    try:
        yield served
    finally:
        server.close()
