"""Server-sent events out of bytes that may be cut anywhere.

The official client's own reader refuses bytes that are no UTF-8 and takes a record that has only a
`retry` for data. This one takes whatever comes, as the HTML standard has it: lines end in LF, CR or
CRLF, a byte order mark may stand first, comments and unknown fields mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_MARK = b"\xef\xbb\xbf"
_LF = b"\n"


class RecordTooLarge(Exception):
    """A record, or a line of one, has more bytes than may be."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record with data, or with the name of an event.

    Attributes:
        data: Its data; lines are joined by LF.
        event: Its name; empty: none.
        is_whole: Whether the line that ends it came. What a connection leaves behind when it is cut
            may be half a record.
    """

    data: str
    event: str = ""
    is_whole: bool = True


class SseReader:
    """Makes records of bytes.

    Args:
        most_bytes: How large a record may be.
    """

    def __init__(self, *, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._line = bytearray()
        self._after_cr = False
        self._at_start = True
        self._data: list[str] = []
        self._data_bytes = 0
        self._event = ""

    def feed(self, chunk: bytes) -> Iterator[Record]:
        """Take bytes, and yield the records that end in them.

        Raises:
            RecordTooLarge: There is no end to one.
        """
        for line in self._lines(chunk):
            record = self._take_line(line)
            if record is not None:
                yield record

    def finish(self) -> Iterator[Record]:
        """Yield what is left when no more bytes come."""
        if self._line:
            line = bytes(self._line)
            self._line.clear()
            self._take_line(self._without_mark(line))
        record = self._take_line(b"")
        if record is not None:
            yield Record(record.data, record.event, is_whole=False)

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        if chunk and self._after_cr:
            self._after_cr = False
            chunk = chunk.removeprefix(_LF)
        # A line that comes in many pieces is looked through once.
        for piece in chunk.splitlines(keepends=True):
            content = piece.rstrip(b"\r\n")
            self._line += content
            if len(self._line) + self._data_bytes > self._most_bytes:
                raise RecordTooLarge
            if len(content) < len(piece):
                line = bytes(self._line)
                self._line.clear()
                yield self._without_mark(line)
        self._after_cr = chunk.endswith(b"\r") if chunk else self._after_cr

    def _without_mark(self, line: bytes) -> bytes:
        if not self._at_start:
            return line
        self._at_start = False
        return line.removeprefix(_MARK)

    def _take_line(self, line: bytes) -> Record | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(text.decode("utf-8", "replace"))
            self._data_bytes += len(text)
        elif name == b"event":
            self._event = text.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> Record | None:
        record = Record("\n".join(self._data), self._event) if self._data or self._event else None
        self._data.clear()
        self._data_bytes = 0
        self._event = ""
        return record
