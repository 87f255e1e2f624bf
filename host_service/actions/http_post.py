"""One POST over HTTP/1.1, within bounds.

Nothing is followed, retried, kept open or taken from the environment: no redirect, no proxy, no
cookie. Who calls bounds the time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, parse_headers
from io import BytesIO
from urllib.parse import SplitResult

# A head larger than this is no answer that anybody waits for.
_HEAD_BYTES = 32 * 1024
_MOST_INTERIM = 5
_CHUNK_LINE_BYTES = 1024
_PORTS = {"http": 80, "https": 443}


class PostFailed(Exception):
    """There is no answer. Its text says why, and names neither address nor path.

    Attributes:
        was_sent: Whether the request may have arrived.
    """

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.

    Attributes:
        status: Its status, such as 200.
        body: Its body, up to as much as was asked for.
        is_whole: Whether that is all of it.
    """

    status: int
    body: bytes
    is_whole: bool


async def post(
    url: SplitResult, *, headers: Mapping[str, str], body: bytes, most_bytes: int
) -> Reply:
    """Send a body and return what is answered.

    Args:
        url: Where, with scheme `http` or `https`.
        headers: Headers beside those that the request needs itself.
        body: What to send.
        most_bytes: How much of the answer's body to read; what is beyond is not waited for.

    Raises:
        PostFailed: There is no answer.
    """
    reader, writer = await _connect(url)
    try:
        writer.write(_request(url, headers, len(body)) + body)
        await writer.drain()
        return await _read_reply(reader, most_bytes)
    except (OSError, EOFError, ValueError, HTTPException, asyncio.LimitOverrunError) as error:
        raise PostFailed(f"the connection broke: {_kind(error)}", was_sent=True) from error
    finally:
        # What the other side may still send is for nobody.
        writer.transport.abort()


async def _connect(url: SplitResult) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host = url.hostname or ""
    port = url.port or _PORTS[url.scheme]
    # Reads the system's certificates, which takes milliseconds.
    tls = await asyncio.to_thread(ssl.create_default_context) if url.scheme == "https" else None
    try:
        return await asyncio.open_connection(host, port, ssl=tls, limit=_HEAD_BYTES)
    except OSError as error:
        raise PostFailed(f"it cannot be reached: {_kind(error)}", was_sent=False) from error


def _kind(error: Exception) -> str:
    """Return what went wrong in words that name no address."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate does not hold: {error.verify_message}"
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return error.strerror.lower()
    return type(error).__name__


def _request(url: SplitResult, headers: Mapping[str, str], length: int) -> bytes:
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    told = {
        "host": url.netloc,
        "content-length": str(length),
        "connection": "close",
        "accept-encoding": "identity",
        **headers,
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _read_reply(reader: asyncio.StreamReader, most_bytes: int) -> Reply:
    for _ in range(_MOST_INTERIM):
        status, headers = await _read_head(reader)
        if status >= 200:
            body = await _read_body(reader, status, headers, most_bytes)
            return Reply(status, body[:most_bytes], is_whole=len(body) <= most_bytes)
    raise ValueError("only interim answers")


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, Message]:
    line, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
    version, _, told = line.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not told[:3].isdigit():
        raise ValueError("no HTTP")
    return int(told[:3]), parse_headers(BytesIO(rest))


async def _read_body(
    reader: asyncio.StreamReader, status: int, headers: Message, most_bytes: int
) -> bytes:
    """Return the body, or one byte more than the most of a longer one."""
    if status in {204, 304}:
        return b""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _read_chunks(reader, most_bytes + 1)
    length = headers.get("content-length")
    if length is not None:
        return await reader.readexactly(min(int(length), most_bytes + 1))
    return await _read_until_end(reader, most_bytes + 1)


async def _read_chunks(reader: asyncio.StreamReader, most: int) -> bytes:
    body = b""
    while len(body) < most:
        line = await reader.readuntil(b"\r\n")
        if len(line) > _CHUNK_LINE_BYTES:
            raise ValueError("a chunk's size is no number")
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            return body
        body += await reader.readexactly(min(size, most - len(body)))
        if len(body) < most:
            await reader.readexactly(2)
    return body


async def _read_until_end(reader: asyncio.StreamReader, most: int) -> bytes:
    body = b""
    while len(body) < most and (block := await reader.read(most - len(body))):
        body += block
    return body
