"""A few threads that read, each with a connection of its own.

A read is one statement, or several that see one moment. It sees everything whose commit was
reported before it was asked for, and does not wait for the writer, on either engine.

PostgreSQL is read by threads as well, not through psycopg's asynchronous pool. Measured side by
side on one server, three connections each: from 32 callers the threads give 2.0 times as many
pages of 50 a second (1,031 to 523), and 1.6 times as many single runs (2,704 to 1,731), for 0.85
and 0.75 of the processor time a read; one caller alone waits 0.40 ms for a page, not 0.49. What a
thread does while it waits, and much of what it decodes, the event loop has for the streams of runs.
And a caller who leaves takes nothing along: a connection is never another's than its thread's,
which finishes what it was asked, so that no cancellation can leak one or leave a transaction open.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from sqlalchemy.sql import ClauseElement

from stores.errors import StoreClosed
from stores.sql.connection import Connection, Database, Row, Values
from stores.sql.delivery import Outcome, settle, wake
from stores.sql.values import is_storable

# Reads are short and mostly served from memory: more threads would only wait for the interpreter.
_THREADS = 3


T = TypeVar("T")


class _Read(NamedTuple):
    work: Callable[[Connection], Any]
    future: asyncio.Future[Any]


class Readers:
    """The queue in front of the reading threads. Its methods belong to the event loop."""

    def __init__(
        self, *, database: Database, loop: asyncio.AbstractEventLoop, threads: int = _THREADS
    ) -> None:
        """Start the threads, which open their connections when there is work."""
        self._database = database
        self._loop = loop
        self._queue: SimpleQueue[_Read | None] = SimpleQueue()
        self._closed = False
        self._running = threads
        self._ended = loop.create_future()
        for number in range(threads):
            name = f"runmesh-reader-{number}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    async def first(self, statement: ClauseElement, values: Values) -> Row | None:
        """Run a query and return its first row, or `None`.

        Raises:
            StoreClosed: The readers were closed.
            StoreUnavailable: The database cannot be read now.
        """
        rows = await self.all(statement, values)
        return rows[0] if rows else None

    async def all(self, statement: ClauseElement, values: Values) -> list[Row]:
        """Run a query and return its rows, as `first` does.

        Text that cannot be stored is nowhere: a query for it has no rows, on either engine.
        """
        if self._closed:
            raise StoreClosed
        if not all(map(is_storable, values.values())):
            return []
        return await self._ask(partial(_all, statement=statement, values=values))

    async def at_one_moment(self, work: Callable[[Connection], T]) -> T:
        """Run several queries that all see the same moment, in a reading thread.

        Args:
            work: What asks them, and works on what they give; it writes nothing. It may run twice,
                if the connection breaks.

        Raises:
            StoreClosed, StoreUnavailable: As `first`; and whatever the work raises.
        """
        if self._closed:
            raise StoreClosed
        return await self._ask(partial(_at_one_moment, work=work))

    async def _ask(self, work: Callable[[Connection], T]) -> T:
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Read(work, future))
        return await future

    async def close(self) -> None:
        """Finish the reads that wait, then close the connections. May be called again."""
        if not self._closed:
            self._closed = True
            for _ in range(self._running):
                self._queue.put(None)
        await asyncio.shield(self._ended)

    def _run(self) -> None:
        reader = _Reader(database=self._database)
        try:
            while self._take_turn(reader):
                pass
            reader.close()
        finally:
            wake(self._loop, self._thread_ended)

    def _take_turn(self, reader: _Reader) -> bool:
        # A turn is a call, so that a thread which waits holds on to nothing of the last one.
        read = self._queue.get()
        if read is None:
            return False
        if not read.future.cancelled():
            wake(self._loop, settle, (reader.answer(read),))
        return True

    def _thread_ended(self) -> None:
        self._running -= 1
        if self._running == 0 and not self._ended.done():
            self._ended.set_result(None)


def _all(connection: Connection, *, statement: ClauseElement, values: Values) -> list[Row]:
    return connection.all(statement, values)


def _at_one_moment(connection: Connection, *, work: Callable[[Connection], T]) -> T:
    connection.begin_snapshot()
    try:
        return work(connection)
    finally:
        connection.rollback()


class _Reader:
    """What one thread does with its connection."""

    def __init__(self, *, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None

    def answer(self, read: _Read) -> Outcome:
        try:
            return Outcome(read.future, self._read(read), None)
        except Exception as error:  # noqa: BLE001 - whatever it is, the future will tell it
            return Outcome(read.future, None, self._database.meaning(error))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read(self, read: _Read) -> Any:
        was_connected = self._connection is not None
        try:
            return self._attempt(read)
        except Exception:
            # The connection broke: worth one more try on a new one.
            broke = was_connected and self._connection is None
            if not broke:
                raise
        return self._attempt(read)

    def _attempt(self, read: _Read) -> Any:
        if self._connection is None:
            self._connection = self._database.connect()
        try:
            return read.work(self._connection)
        except Exception:
            if self._connection.is_lost:
                self.close()
            raise
