"""A server of the OpenAI protocol that does what it is told to, byte by byte.

It speaks HTTP/1.1 over a plain socket, so that nothing between a test and the wire makes anything
better: bytes may be cut anywhere, a body may end in the middle, a connection may just be left.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

_EVENTS = {"content-type": "text/event-stream"}
_JSON = {"content-type": "application/json"}


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What is answered to one request.

    Attributes:
        body: The body.
        status: The status.
        headers: Headers, beside those that frame the body.
        piece: How many bytes are written at once; 0: all of them.
        cut: Whether the connection is closed before the body has ended.
        silent: Whether nothing at all is answered.
        then_wait: Whether the connection stays as it is when the body has been written, until the
            client closes it.
        until: Set, before it is answered.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: dict(_EVENTS))
    piece: int = 0
    cut: bool = False
    silent: bool = False
    then_wait: bool = False
    until: asyncio.Event | None = None


@dataclass
class Request:
    """A request that came.

    Attributes:
        path: Its path.
        headers: Its headers, names in lower case.
        text: Its body.
        closed: Set when the client has closed the connection before the answer had ended.
    """

    path: str
    headers: Mapping[str, str]
    text: str
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def body(self) -> Any:
        """The body's JSON."""
        return json.loads(self.text)


class TortureServer:
    """Answers requests by replies, in their order; the last one again and again.

    Attributes:
        requests: What came.
        base_url: Where it listens.
        most_at_once: How many requests were being answered at the same time, at most.
    """

    base_url: str

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.most_at_once = 0
        self._replies: list[Reply | Callable[[Request], Reply]] = []
        self._at_once = 0
        self._arrived = asyncio.Condition()

    def answer(self, *replies: Reply | Callable[[Request], Reply]) -> None:
        """Answer what comes from now on so."""
        self._replies = list(replies)

    async def arrived(self, count: int = 1) -> None:
        """Return once so many requests have come."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["TortureServer"]:
        """Serve, as long as the context lasts."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}/v1"
        tasks = self._tasks = set[asyncio.Task[Any]]()
        try:
            yield self
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve_one(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read_request(reader)
        async with self._arrived:
            self.requests.append(request)
            reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
            self._arrived.notify_all()
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        gone = asyncio.create_task(self._watch(reader, request))
        try:
            await self._reply(reply(request) if callable(reply) else reply, writer, gone)
        finally:
            self._at_once -= 1
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _watch(self, reader: asyncio.StreamReader, request: Request) -> None:
        # A client that waits for an answer sends nothing more: what can be read is its end.
        try:
            data = await reader.read(1)
        except ConnectionError:
            data = b""
        if not data:
            request.closed.set()

    async def _reply(
        self, reply: Reply, writer: asyncio.StreamWriter, gone: asyncio.Task[None]
    ) -> None:
        if reply.until is not None:
            await reply.until.wait()
        if reply.silent:
            await gone
            return
        head = [
            f"HTTP/1.1 {reply.status} Whatever",
            "connection: close",
            "transfer-encoding: chunked",
        ]
        head += [f"{name}: {value}" for name, value in reply.headers.items()]
        writer.write("\r\n".join([*head, "", ""]).encode("latin-1"))
        size = reply.piece or max(len(reply.body), 1)
        for begin in range(0, len(reply.body), size):
            piece = reply.body[begin : begin + size]
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            if reply.piece:
                # Each piece is read by itself.
                await asyncio.sleep(0)
        if reply.then_wait:
            await gone
        elif not reply.cut:
            writer.write(b"0\r\n\r\n")
            await writer.drain()


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first.split(" ")[1], headers, body.decode())


def events(*records: object, done: bool = True, ending: str = "\n") -> bytes:
    """Return a stream of records: JSON of what is no text, and text as it is."""
    lines = [
        record if isinstance(record, str) else f"data: {json.dumps(record, ensure_ascii=False)}"
        for record in (*records, *(("data: [DONE]",) if done else ()))
    ]
    # What JSON writes of half a character is no UTF-8, and some send it all the same.
    return "".join(f"{line}{ending}{ending}" for line in lines).encode("utf-8", "surrogatepass")


def chunk(content: object = None, *, finish: object = None, **delta: Any) -> dict[str, Any]:
    """Return a chunk of a stream."""
    if content is not None:
        delta["content"] = content
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": "gpt-served",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def streamed(*records: object, piece: int = 0, **more: Any) -> Reply:
    """Return a reply that is a stream of records."""
    return Reply(body=events(*records), piece=piece, **more)


def said(text: str, **more: Any) -> Reply:
    """Return a reply that says a text."""
    return streamed(chunk(text), chunk(finish="stop"), **more)


def json_reply(content: object, *, status: int = 200, **headers: str) -> Reply:
    """Return a reply that is JSON; names of headers are written with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(body=json.dumps(content).encode(), status=status, headers={**_JSON, **named})


def completion(message: Mapping[str, Any], *, finish: object = "stop", **more: Any) -> Reply:
    """Return a reply that is a whole answer."""
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json_reply({"id": "1", "model": "gpt-served", "choices": [choice], **more})


def vectors(values: Sequence[object], **more: Any) -> Reply:
    """Return a reply that has vectors."""
    data = [{"index": index, "embedding": value} for index, value in enumerate(values)]
    return json_reply({"data": data, **more})
