"""A tool server at an address: streamable HTTP, with headers that are secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2
from mcp.client.streamable_http import streamable_http_client

from host_service.tools.mending import StreamMender
from host_service.tools.transport import Transport

_CONNECT_SECONDS = 15.0
_SESSION_HEADER = "mcp-session-id"
_NOT_FOUND = 404


class Addressed(Transport):
    """An address that is spoken to.

    Args:
        message_bytes: How large one of its messages may be.
    """

    def __init__(self, *, message_bytes: int) -> None:
        super().__init__()
        self._message_bytes = message_bytes

    async def look_at(self, response: httpx2.Response) -> None:
        """Takes note of what a response says before the session sees it, and mends its text."""
        if response.status_code == _NOT_FOUND and _SESSION_HEADER in response.request.headers:
            self.forgot_session = True
        if response.is_error:
            self._fault = f"it answered with HTTP {response.status_code} {response.reason_phrase}"
        elif response.request.method == "POST":
            self._fault = ""
        stream = response.stream
        if isinstance(stream, httpx2.AsyncByteStream) and (
            "content-encoding" not in response.headers
        ):
            kind = response.headers.get("content-type", "").lower()
            # A stream of events is bounded event by event; an answer in one piece is not.
            most_bytes = None if kind.startswith("text/event-stream") else self._message_bytes
            response.stream = _Mended(stream, most_bytes)


@asynccontextmanager
async def addressed(
    url: str, headers: Mapping[str, str], *, message_bytes: int, answer_seconds: float
) -> AsyncIterator[Addressed]:
    """Speaks to an address; leaving the context ends the session there.

    Args:
        url: The address.
        headers: What every request carries.
        message_bytes: How large one of its messages may be.
        answer_seconds: How long an answer may go without a byte.
    """
    transport = Addressed(message_bytes=message_bytes)
    async with (
        httpx2.AsyncClient(
            # Not packed: what comes is looked at as it is.
            headers={"accept-encoding": "identity", **headers},
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=answer_seconds),
            event_hooks={"response": [transport.look_at]},
        ) as client,
        streamable_http_client(
            url, http_client=client, max_sse_event_size=message_bytes
        ) as streams,
    ):
        transport.streams = streams
        yield transport


class _Mended(httpx2.AsyncByteStream):
    """A response's bytes with the text in them mended, and bounded."""

    def __init__(self, stream: httpx2.AsyncByteStream, most_bytes: int | None) -> None:
        self._stream = stream
        self._most_bytes = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        mender, seen_bytes = StreamMender(), 0
        async for chunk in self._stream:
            seen_bytes += len(chunk)
            if self._most_bytes is not None and seen_bytes > self._most_bytes:
                raise httpx2.StreamError(f"the answer has more than {self._most_bytes} bytes")
            if mended := mender.feed(chunk):
                yield mended
        if rest := mender.end():
            yield rest

    async def aclose(self) -> None:
        """Lets go of the connection."""
        await self._stream.aclose()
