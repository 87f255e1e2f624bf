"""Lines cut out of a stream, in time that grows with its length and no faster."""

from __future__ import annotations

from collections.abc import Iterator


class LineTooLong(Exception):
    """A line is longer than one may be."""


class LineSplitter:
    """Cuts a stream into lines.

    Args:
        most_bytes: How long a line may be.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._begun: list[bytes] = []
        self._begun_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the lines that end in what came, without their ends.

        Raises:
            LineTooLong: The one that is under way is too long.
        """
        *ended, rest = data.split(b"\n")
        for line in ended:
            yield b"".join([*self._begun, line])
            self._begun.clear()
            self._begun_bytes = 0
        if rest:
            self._begun.append(rest)
            self._begun_bytes += len(rest)
        if self._begun_bytes > self._most_bytes:
            raise LineTooLong(f"a message of more than {self._most_bytes} bytes")
