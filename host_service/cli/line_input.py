"""Lines from standard input, for an event loop that has other things to do meanwhile."""

import asyncio
import codecs
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from host_service.cli.failures import CommandError

# More than the largest event: what is longer is refused here, unread, instead of filling memory.
LONGEST_LINE_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """A line of input.

    Attributes:
        number: Which, from 1.
        text: Its text without the line's end; None when it cannot be used.
        fault: What is wrong with it, for people; empty when nothing is.
    """

    number: int
    text: str | None
    fault: str = ""


async def read_lines(descriptor: int) -> AsyncIterator[Line]:
    """Yields the lines of a file, a pipe or a terminal, each when it is whole.

    A thread reads, because neither files nor every terminal can be waited for by an event loop. It
    reads the descriptor itself: a thread that holds a buffered stream's lock would keep the
    interpreter from ending while it waits for input that never comes.

    Raises:
        CommandError: The descriptor cannot be read.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    wanted = threading.Semaphore(0)

    def read() -> None:
        chunk: bytes | OSError = b"more"
        while chunk and not isinstance(chunk, OSError) and wanted.acquire():
            try:
                chunk = os.read(descriptor, _CHUNK_BYTES)
            except OSError as error:
                chunk = error
            # Input that comes after the command has ended is nobody's.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)

    threading.Thread(target=read, name="standard input", daemon=True).start()
    splitter = _Splitter()
    while not splitter.ended:
        wanted.release()
        chunk = await chunks.get()
        if isinstance(chunk, OSError):
            raise CommandError(f"cannot read standard input: {chunk.strerror}")
        for line in splitter.feed(chunk):
            yield line


class _Splitter:
    """Cuts bytes into lines."""

    def __init__(self) -> None:
        self.ended = False
        self._rest = bytearray()
        self._number = 0
        self._too_long = False

    def feed(self, chunk: bytes) -> list[Line]:
        if not chunk:
            self.ended = True
            return [self._line(bytes(self._rest))] if self._rest or self._too_long else []
        *whole, rest = chunk.split(b"\n")
        lines = []
        for piece in whole:
            self._keep(piece)
            lines.append(self._line(bytes(self._rest)))
            self._rest.clear()
            self._too_long = False
        self._keep(rest)
        return lines

    def _keep(self, piece: bytes) -> None:
        if self._too_long or len(self._rest) + len(piece) > LONGEST_LINE_BYTES:
            self._too_long = True
            self._rest.clear()
        else:
            self._rest += piece

    def _line(self, content: bytes) -> Line:
        self._number += 1
        if self._number == 1:
            content = content.removeprefix(codecs.BOM_UTF8)
        content = content.removesuffix(b"\r")
        if self._too_long:
            fault = f"is longer than {LONGEST_LINE_BYTES} bytes: it was not sent"
            return Line(self._number, None, fault)
        try:
            return Line(self._number, content.decode("utf-8"))
        except UnicodeDecodeError:
            fault = "is not UTF-8: what is not was replaced by U+FFFD"
            return Line(self._number, content.decode("utf-8", "replace"), fault)
