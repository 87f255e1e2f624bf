"""What a plugin prints: always read, logged in bounds, its end kept for errors.

Both streams are read as fast as they come, within a budget: a plugin that floods is slowed down,
not the host. Of what is read, so many lines a second go to the log, cut and made harmless; the rest
is counted.
"""

import asyncio
import logging
import os
import re
from collections import deque

plugin_log = logging.getLogger("runmesh.plugin")

#: A longer line is cut in the log.
LINE_LIMIT_BYTES = 4096
#: How much of a stream's end is kept for errors.
TAIL_LINES = 40
TAIL_BYTES = 8192

_BLOT = b"***"
_LINES_AT_ONCE = 200
_LINES_A_SECOND = 50.0
_TELL_SECONDS = 1.0

_CHUNK_BYTES = 64 * 1024
# A pipe holds 64 KiB, or at most 1 MiB where a process asked for more.
_PIPE_CHUNKS = 17
# What is read of one stream in one period; a flood waits for the next. 40 MiB a second cost the
# host's loop two hundredths of its time.
_BUDGET_BYTES = 2 * 1024 * 1024
_PERIOD_SECONDS = 0.05

# Colours, cursor movements, window titles: whole sequences go, so that the text stays readable.
_TERMINAL_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|[ -/]*[0-~])"
)
# What could still move a cursor, forge a line of the log, or turn text around.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def readable(line: bytes, *, cut_bytes: int = 0) -> str:
    """A line as the log may show it: decoded with replacement, cut, without control characters.

    Args:
        line: The line, without its end.
        cut_bytes: How much of it was cut before.
    """
    shown = line[:LINE_LIMIT_BYTES].rstrip(b"\r").decode(errors="replace").removeprefix("\ufeff")
    shown = _TERMINAL_SEQUENCE.sub("", shown)
    shown = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", shown)
    cut_bytes += max(len(line) - LINE_LIMIT_BYTES, 0)
    return f"{shown} [{cut_bytes} bytes more]" if cut_bytes else shown


class LineBudget:
    """How many lines of a process may go to the log: a burst at first, then so many a second."""

    def __init__(self, *, at_once: int = _LINES_AT_ONCE, a_second: float = _LINES_A_SECOND) -> None:
        self._at_once = at_once
        self._a_second = a_second
        self._left = float(at_once)
        self._filled_at = 0.0
        self._omitted = 0
        self._told_at = 0.0

    def take(self, wanted: int, *, now: float) -> int:
        """Takes up to `wanted` lines, and counts the others as left out."""
        self._left = min(self._at_once, self._left + (now - self._filled_at) * self._a_second)
        self._filled_at = now
        taken = min(wanted, int(self._left))
        self._left -= taken
        self._omitted += wanted - taken
        return taken

    def omitted(self, *, now: float, at_once: bool = False) -> int:
        """How many lines were left out since this was told; told once a second, or at once."""
        if not self._omitted or (now - self._told_at < _TELL_SECONDS and not at_once):
            return 0
        omitted, self._omitted, self._told_at = self._omitted, 0, now
        return omitted


class OutputStream:
    """One stream of a process: split in lines, logged, its end kept.

    Args:
        plugin_id: Named in every line of the log.
        name: `stdout` or `stderr`.
        budget: Shared by the streams of a process.
        hidden: What is blotted out wherever it is printed.
    """

    def __init__(
        self, *, plugin_id: str, name: str, budget: LineBudget, hidden: tuple[str, ...] = ()
    ) -> None:
        self._hidden = tuple(each.encode() for each in hidden)
        self._facts = {"plugin_id": plugin_id, "stream": name}
        self._plugin_id = plugin_id
        self._budget = budget
        # As they came, each with how much of it was cut before: they are read only for an error.
        self._last: deque[tuple[bytes, int]] = deque(maxlen=TAIL_LINES)
        # The line under way, no more of it than is shown, and how much of it was cut.
        self._begun = b""
        self._cut_bytes = 0

    def feed(self, data: bytes, *, now: float) -> None:
        """Takes what was read."""
        data = self._begun + data
        for each in self._hidden:
            data = data.replace(each, _BLOT)
        ended = data.count(b"\n")
        logged_count = self._budget.take(ended, now=now)
        *logged, rest = data.split(b"\n", logged_count)
        *omitted, rest = rest.rsplit(b"\n", TAIL_LINES + 1)
        cut_bytes = self._cut_bytes if ended else 0
        for line in logged:
            shown = readable(line, cut_bytes=cut_bytes)
            self._last.append(_cut(line, cut_bytes))
            cut_bytes = 0
            plugin_log.info("%s: %s", self._plugin_id, shown, extra=self._facts)
        self._last.extend(_cut(line, 0) for line in omitted[-TAIL_LINES:])
        self._tell_omitted(self._budget.omitted(now=now))
        self._cut_bytes = (0 if ended else self._cut_bytes) + max(len(rest) - LINE_LIMIT_BYTES, 0)
        self._begun = rest[:LINE_LIMIT_BYTES]

    def end(self, *, now: float) -> None:
        """The stream has ended, perhaps within a line."""
        if self._begun:
            self.feed(b"\n", now=now)
        self._tell_omitted(self._budget.omitted(now=now, at_once=True))

    def tail(self) -> str:
        """The end of what was printed, made readable, a line under way included."""
        lines = [readable(line, cut_bytes=cut_bytes) for line, cut_bytes in self._last]
        if self._begun:
            lines.append(readable(self._begun, cut_bytes=self._cut_bytes))
        size = 0
        kept: deque[str] = deque()
        for line in reversed(lines[-TAIL_LINES:]):
            size += len(line.encode()) + 1
            if size > TAIL_BYTES:
                break
            kept.appendleft(line)
        return "\n".join(kept).strip()

    def _tell_omitted(self, omitted: int) -> None:
        if omitted:
            text = "%s: %d lines left out of this log"
            plugin_log.warning(text, self._plugin_id, omitted, extra=self._facts)


def _cut(line: bytes, cut_bytes: int) -> tuple[bytes, int]:
    return line[:LINE_LIMIT_BYTES], cut_bytes + max(len(line) - LINE_LIMIT_BYTES, 0)


class PipeReader:
    """Reads a pipe on the event loop into a stream, until it ends or is closed.

    Args:
        descriptor: The pipe's reading end; the reader closes it.
        stream: What takes the data.
    """

    def __init__(self, descriptor: int, stream: OutputStream) -> None:
        self._descriptor = descriptor
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        self._period_ends_at = 0.0
        self._left_bytes = 0
        self._closed = False
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def drain(self) -> None:
        """Takes what a process that has ended left in the pipe."""
        for _ in range(_PIPE_CHUNKS):
            if self._closed or not self._read_chunk():
                return

    def close(self) -> None:
        """Ends reading, whoever still holds the other end."""
        if self._closed:
            return
        self._closed = True
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._stream.end(now=self._loop.time())

    def _read(self) -> None:
        size = self._read_chunk()
        now = self._loop.time()
        if now >= self._period_ends_at:
            self._period_ends_at = now + _PERIOD_SECONDS
            self._left_bytes = _BUDGET_BYTES
        self._left_bytes -= size
        if self._left_bytes <= 0 and not self._closed:
            self._loop.remove_reader(self._descriptor)
            self._resume = self._loop.call_at(self._period_ends_at, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        self._loop.add_reader(self._descriptor, self._read)

    def _read_chunk(self) -> int:
        """Reads once; returns how much, 0 when there is nothing now or never again."""
        try:
            data = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self._stream.feed(data, now=self._loop.time())
        else:
            self.close()
        return len(data)
