"""The delivered results of one active run, and everybody who reads them.

A run delivers batches of encoded results. Each reader has a buffer of its own: what waits in it
goes out together. A patient reader (the caller of `Dispatch`) slows the run when its buffer is
full, until it has not read for too long; an impatient one (a watcher) is ended at once. Both can go
on later by sequence. Encoded batches are joined by putting their bytes one behind the
other: a repeated field may be split in any way on the wire.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from host_service.errors import HostError, Overloaded
from host_service.limits import Limits
from stores.records import RunRecord

_RETRY_AFTER_SECONDS = 0.1


class Batch(NamedTuple):
    """Results that go out together.

    Attributes:
        encoded: A `ResultBatch` on the wire.
        last_sequence: The largest delivered number in it.
    """

    encoded: bytes
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing new for a while; everything up to this number was delivered."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The run has ended."""

    run: RunRecord


class Reader:
    """One reader of a run. Made by `ResultLog.subscribe`; to be closed.

    `take` returns what waits: results together up to the size of a frame, then `Ended`, in the
    order they were delivered.
    """

    def __init__(
        self, *, patient: bool, after: int, limits: Limits, closed: Callable[[Reader], None]
    ) -> None:
        self.patient = patient
        self._limits = limits
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Batch] = deque()
        self._size = 0
        self._end: Ended | None = None
        self._error: HostError | None = None
        self._wake: asyncio.Future[bool] | None = None
        self._room: asyncio.Future[None] | None = None
        self._idle_since = 0.0
        self._bookmark: asyncio.TimerHandle | None = None
        self._after = after
        self._seen = after

    @property
    def full(self) -> bool:
        """Whether its buffer has no room."""
        return self._size >= self._limits.reader_buffer_bytes

    def offer(self, batch: Batch) -> None:
        """Put a batch into the buffer; an impatient reader whose buffer is full is ended."""
        if self._error is not None or batch.last_sequence <= self._after:
            return
        if self.full and not self.patient:
            self.end_slow()
            return
        self._waiting.append(batch)
        self._size += len(batch.encoded)
        self._notify()

    def finish(self, end: Ended) -> None:
        """Say that the run has ended."""
        self._end = end
        self._notify()

    def end_slow(self) -> None:
        """End this reader, since it does not read."""
        self._waiting.clear()
        self._size = 0
        self.fail(
            Overloaded(
                f"this reader is more than {self._limits.reader_buffer_bytes} bytes behind; the "
                f"run goes on: call WatchRun with after_sequence {self._seen}",
                facts={
                    "limit": str(self._limits.reader_buffer_bytes),
                    "last_sequence": str(self._seen),
                },
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )
        )

    def fail(self, error: HostError) -> None:
        """End this reader with an error, after what waits in its buffer."""
        self._error = error
        self._notify()
        self._release()

    async def room(self) -> None:
        """Return once the buffer has room, or the reader is gone."""
        if self.full and self._error is None:
            self._room = self._loop.create_future()
            await self._room

    async def take(self) -> Batch | Bookmark | Ended:
        """Return what waits, or wait for it.

        Raises:
            HostError: The reader was too slow, or the end of the run is not known.
        """
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if self._end is not None:
                return self._end
            if not await self._news():
                return Bookmark(self._seen)
        return self._drain()

    async def _news(self) -> bool:
        """Wait for anything to happen; return False if nothing did until a bookmark is due."""
        wake: asyncio.Future[bool] = self._loop.create_future()
        self._wake = wake
        self._idle_since = self._loop.time()
        if self._bookmark is None:
            self._bookmark = self._loop.call_later(self._limits.bookmark_seconds, self._look_idle)
        try:
            return await wake
        finally:
            self._wake = None

    def _look_idle(self) -> None:
        """Say that a bookmark is due, if nothing came; one timer serves all waits."""
        self._bookmark = None
        if self._wake is None:
            return
        due = self._idle_since + self._limits.bookmark_seconds
        if due <= self._loop.time():
            self._notify(news=False)
        else:
            self._bookmark = self._loop.call_at(due, self._look_idle)

    def _drain(self) -> Batch:
        first = self._waiting.popleft()
        size = len(first.encoded)
        pieces, last = [first.encoded], first.last_sequence
        while self._waiting and size + len(self._waiting[0].encoded) <= self._limits.frame_bytes:
            batch = self._waiting.popleft()
            size += len(batch.encoded)
            pieces.append(batch.encoded)
            last = batch.last_sequence
        self._size -= size
        self._seen = last
        self._release()
        return first if len(pieces) == 1 else Batch(b"".join(pieces), last)

    def close(self) -> None:
        """Stop reading."""
        if self._bookmark is not None:
            self._bookmark.cancel()
        self._closed(self)
        self._waiting.clear()
        self._size = 0
        self._release()

    def _notify(self, *, news: bool = True) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(news)

    def _release(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


class ResultLog:
    """Where a run's results go: to the readers there are."""

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits
        self._readers: list[Reader] = []
        self._end: Ended | None = None
        self._error: HostError | None = None

    @property
    def has_readers(self) -> bool:
        """Whether anybody reads."""
        return bool(self._readers)

    @property
    def readers(self) -> int:
        """How many read."""
        return len(self._readers)

    def subscribe(self, *, patient: bool, after: int = 0) -> Reader:
        """Return a reader of everything that is delivered from now on.

        Args:
            patient: Whether it may slow the run.
            after: Leave out batches up to this number: one that is on its way may have been seen.
        """
        reader = Reader(patient=patient, after=after, limits=self._limits, closed=self._drop)
        if self._end is not None:
            reader.finish(self._end)
        if self._error is not None:
            reader.fail(self._error)
        self._readers.append(reader)
        return reader

    async def deliver(self, batch: Batch) -> None:
        """Hand a batch to every reader; wait while a patient one has no room."""
        slow = []
        for reader in self._readers:
            reader.offer(batch)
            if reader.patient and reader.full:
                slow.append(reader)
        for reader in slow:
            await self._wait_for(reader)

    async def _wait_for(self, reader: Reader) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._limits.reader_patience_seconds, reader.end_slow)
        try:
            await reader.room()
        finally:
            timer.cancel()

    def deliver_last(self, batch: Batch) -> None:
        """Hand the run's last batch to every reader, without waiting for room."""
        for reader in self._readers:
            reader.offer(batch)

    def fail(self, error: HostError) -> None:
        """End every reader with an error: the end of the run is not known."""
        self._error = error
        for reader in self._readers:
            reader.fail(error)

    def end(self, run: RunRecord) -> None:
        """Say that the run has ended, to readers of now and of later."""
        self._end = Ended(run)
        for reader in self._readers:
            reader.finish(self._end)

    def _drop(self, reader: Reader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)
