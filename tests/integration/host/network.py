"""A network between callers and a host, which can lose answers and break connections."""

import asyncio
import socket
import struct
from types import TracebackType
from typing import Any, Self

_CHUNK_BYTES = 65536
# A connection closed so is reset: nobody says goodbye.
_ABRUPTLY = struct.pack("ii", 1, 0)


class Network:
    """Carries TCP connections to a host until it is told to break them.

    Args:
        target: Where the host listens, `HOST:PORT`.

    Attributes:
        address: Where callers connect instead.
        loses_answers: Whether what the host sends is lost from now on.
        loses_all: Whether nothing arrives at either end any more, and nothing is closed.
    """

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.address = ""
        self.loses_answers = False
        self.loses_all = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    @property
    def connections(self) -> int:
        """How many connections it carries."""
        return len(self._writers) // 2

    def cut(self) -> None:
        """Breaks every connection, at both ends and at once."""
        for writer in list(self._writers):
            self._break(writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, far_writer}
        try:
            await asyncio.gather(
                self._forward(reader, far_writer),
                self._forward(far_reader, writer, is_answer=True),
            )
        finally:
            for each in (writer, far_writer):
                self._break(each)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool = False
    ) -> None:
        try:
            while data := await reader.read(_CHUNK_BYTES):
                if self.loses_all or (is_answer and self.loses_answers):
                    continue
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        self._break(writer)

    def _break(self, writer: asyncio.StreamWriter) -> None:
        if writer not in self._writers:
            return
        self._writers.discard(writer)
        connection: Any = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABRUPTLY)
        writer.transport.abort()
