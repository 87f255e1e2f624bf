"""A few threads that read, each with a connection of its own.

A read is one statement. It sees everything whose commit was reported before it was asked for, and
does not wait for the writer, on either engine.
"""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from typing import NamedTuple

from sqlalchemy.sql import ClauseElement

from stores.errors import StoreClosed, StoreError
from stores.sql.connection import Connection, Database, Row, Values
from stores.sql.delivery import Outcome, settle, wake
from stores.sql.values import is_storable

# Reads are short and mostly served from memory: more threads would only wait for the interpreter.
_THREADS = 3


class _Read(NamedTuple):
    statement: ClauseElement
    values: Values
    future: asyncio.Future[list[Row]]


class Readers:
    """The reading threads. Its methods belong to the event loop."""

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
        future: asyncio.Future[list[Row]] = self._loop.create_future()
        self._queue.put(_Read(statement, values, future))
        return await future

    async def close(self) -> None:
        """Finish the reads that wait, then close the connections. May be called again."""
        if not self._closed:
            self._closed = True
            for _ in range(self._running):
                self._queue.put(None)
        await asyncio.shield(self._ended)

    def _run(self) -> None:
        connection: Connection | None = None
        while (read := self._queue.get()) is not None:
            if read.future.cancelled():
                continue
            outcome, connection = self._answer(read, connection)
            wake(self._loop, settle, (outcome,))
        if connection is not None:
            connection.close()
        wake(self._loop, self._thread_ended)

    def _answer(
        self, read: _Read, connection: Connection | None
    ) -> tuple[Outcome, Connection | None]:
        """Run a read, once more on a new connection if the one it had was lost."""
        may_retry = connection is not None
        while True:
            try:
                connection = connection or self._database.connect()
                rows = connection.all(read.statement, read.values)
                return Outcome(read.future, rows, None), connection
            except Exception as error:  # noqa: BLE001 - whatever it is, the future will tell it
                if connection is None or not connection.is_lost:
                    return Outcome(read.future, None, self._meaning(error)), connection
                connection.close()
                connection = None
                if not may_retry:
                    return Outcome(read.future, None, self._meaning(error)), None
                may_retry = False

    def _meaning(self, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        meaning = self._database.dialect.translate(error)
        meaning.__cause__ = error
        return meaning

    def _thread_ended(self) -> None:
        self._running -= 1
        if self._running == 0 and not self._ended.done():
            self._ended.set_result(None)
