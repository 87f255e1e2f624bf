"""A caller that writes HTTP/2 by hand, with headers that no gRPC client would let through."""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from google.protobuf.message import Message

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACKNOWLEDGED, _END_HEADERS = 1, 1, 4
_STREAM = 1
# A name with its length before it; that of the details begins the same.
_STATUS = b"\x0bgrpc-status"
_PATIENCE_SECONDS = 20.0

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(slots=True)
class Answered:
    """What came back.

    Attributes:
        messages: The messages of the response, as bytes.
        headers: All header blocks, as they are on the wire.
        was_reset: Whether the stream or the connection was broken off.
    """

    messages: bytes = b""
    headers: list[bytes] = field(default_factory=list)
    was_reset: bool = False

    @property
    def status(self) -> str:
        """The number of the gRPC status, which our servers write as it is; empty for none."""
        _, _, behind = b"".join(self.headers).rpartition(_STATUS)
        return behind[1 : 1 + behind[0]].decode() if behind else ""


async def call(address: str, method: str, request: Message, headers: Headers) -> Answered:
    """Calls a method at `HOST:PORT`, and returns what came back when the call is over."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        encoded = request.SerializeToString()
        sent = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", method.encode()),
                (b":authority", b"localhost"), (b"te", b"trailers"),
                (b"content-type", b"application/grpc"), *headers]  # fmt: skip
        writer.write(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        block = b"".join(_literal(name, value) for name, value in sent)
        writer.write(_frame(_HEADERS, _END_HEADERS, _STREAM, block))
        body = struct.pack(">BI", 0, len(encoded)) + encoded
        writer.write(_frame(_DATA, _END_STREAM, _STREAM, body))
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await _answer(reader, writer)
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answered:
    answered = Answered()
    async for kind, flags, payload in _frames(reader):
        match kind:
            case 0:
                answered.messages += payload
            case 1:
                answered.headers.append(payload)
            case 3 | 7:
                answered.was_reset = True
                return answered
            case 4 | 6 if not flags & _ACKNOWLEDGED:
                answer = payload if kind == _PING else b""
                writer.write(_frame(kind, _ACKNOWLEDGED, 0, answer))
        if kind in {_DATA, _HEADERS} and flags & _END_STREAM:
            return answered
    answered.was_reset = True
    return answered


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, int, bytes]]:
    try:
        while True:
            head = await reader.readexactly(9)
            size = int.from_bytes(head[:3], "big")
            yield head[3], head[4], await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """A header that is written out and not indexed."""
    return b"\0" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes([len(text)]) + text
    rest, encoded = len(text) - 127, bytearray([127])
    while rest >= 128:
        encoded.append(rest % 128 + 128)
        rest //= 128
    encoded.append(rest)
    return bytes(encoded) + text
