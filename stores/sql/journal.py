"""The journal: one thread that writes, and commits for many at once.

What flows where::

    event loop                                   writer thread
    submit(work) -> future --- SimpleQueue --->  take what waits (never wait for more)
                                                 BEGIN; work; work; ...; COMMIT
    futures settle        <-- one wake-up -----  all outcomes of the transaction

- Work runs in the order it was submitted. A transaction holds what waited when it began: one
  piece when idle, with no added wait, and many under load, which then share one commit.
- Pieces of one and the same statement that follow each other are sent together.
- A piece that raises `Refused` has written nothing, and costs its neighbours nothing. Any other
  error in a piece undoes the transaction, and its pieces are run again one by one, so that the bad
  one fails alone. Work may thus run twice, and must do nothing but write to its connection.
- A future is done after the commit: a reported fact is durable.
- A piece may have a second future that is done when its work has run and the commit is yet to
  come, for who can do something useful meanwhile, and undo it should the commit fail.
- When the connection is lost before the commit was sent, the server has undone the transaction,
  and it is tried once more on a new connection. When it is lost after, the outcome is in doubt and
  told as such.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy.sql import ClauseElement

from stores.errors import Refused, StoreClosed, StoreError, StoreOverloaded, StoreUnavailable
from stores.journal import JournalStatistics
from stores.sql.connection import Connection, Database, Values
from stores.sql.delivery import Outcome, announce, logger, settle, wake

T = TypeVar("T")
Work = Callable[[Connection], T]


class OneStatement(Generic[T]):
    """Work that is one statement, and what follows from how many rows that touched.

    Such pieces run together where they follow each other: a server is then asked once for all.
    """

    __slots__ = ("_conclusion", "statement", "values")

    def __init__(
        self, statement: ClauseElement, values: Values, conclusion: Callable[[int, Connection], T]
    ) -> None:
        """Take the statement, its values, and what returns or raises the outcome."""
        self.statement = statement
        self.values = values
        self._conclusion = conclusion

    def __call__(self, connection: Connection) -> T:
        """Run it alone."""
        return self.conclude(connection.run(self.statement, self.values), connection)

    def conclude(self, touched: int, connection: Connection) -> T:
        """Return the outcome of the statement; what it raises must not follow a write."""
        return self._conclusion(touched, connection)


# What one piece of work is taken to hold beside its rows.
_PIECE_BYTES = 512

# Writing methods cannot wait, so that they may go beyond the bounds that `room` keeps, so far.
_OVERLOAD_FACTOR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """Bounds of the journal.

    Attributes:
        waiting: Pieces that may wait before `room` does.
        waiting_bytes: Bytes that these may hold.
        pieces: The most pieces in one transaction, which bounds how long the first one waits
            for the last.
    """

    waiting: int = 8_192
    waiting_bytes: int = 64 * 1024 * 1024
    pieces: int = 1_024


class _Piece(NamedTuple):
    work: Work[Any]
    future: asyncio.Future[Any]
    size: int
    prepared: asyncio.Future[Any] | None = None


class SqlJournal:
    """The queue in front of the writer thread. Its methods belong to the event loop."""

    def __init__(
        self,
        *,
        database: Database,
        loop: asyncio.AbstractEventLoop,
        limits: JournalLimits | None = None,
    ) -> None:
        """Start the writer thread, which opens its connection when there is work."""
        self._loop = loop
        self._limits = limits or JournalLimits()
        self._queue: SimpleQueue[_Piece | None] = SimpleQueue()
        self._writer = _Writer(
            database=database,
            queue=self._queue,
            most=self._limits.pieces,
            announce=self._announce,
            report=self._report,
        )
        self._submitted = 0
        self._waiting = 0
        self._waiting_bytes = 0
        self._room_waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self._ended = loop.create_future()
        self._thread = threading.Thread(target=self._run, name="runmesh-journal", daemon=True)
        self._thread.start()

    def submit(
        self, work: Work[T], *, size: int = 0, prepared: asyncio.Future[T] | None = None
    ) -> asyncio.Future[T]:
        """Hand in a piece of work.

        Args:
            work: What to run in a transaction, in the writer thread. It must raise `Refused`
                before it writes anything, or not at all.
            size: About how many bytes it holds on to.
            prepared: Done with what the work returned or raised, before that is durable.

        Returns:
            A future of what it returns, done once that is durable. It may be ignored, and its
            waiter cancelled: the work is done all the same.

        Raises:
            StoreClosed: The journal was closed.
            StoreOverloaded: Far more waits than should.
        """
        if self._closed:
            raise StoreClosed
        if self._is_beyond(_OVERLOAD_FACTOR):
            raise StoreOverloaded(
                f"{self._waiting} pieces of work with {self._waiting_bytes} bytes wait for the "
                "journal: await room() before writing more"
            )
        return self._enqueue(work, size + _PIECE_BYTES, prepared)

    def _enqueue(
        self, work: Work[T], size: int, prepared: asyncio.Future[T] | None = None
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self._submitted += 1
        self._waiting += 1
        self._waiting_bytes += size
        self._queue.put(_Piece(work, future, size, prepared))
        return future

    async def room(self) -> None:
        """Wait while more waits than should."""
        while self._is_beyond(1):
            waiter = self._loop.create_future()
            self._room_waiters.append(waiter)
            await waiter

    async def flush(self) -> None:
        """Wait until the outcome of everything handed in so far is known."""
        if self._closed:
            await self.close()
        elif self._waiting:
            await self._enqueue(_nothing, _PIECE_BYTES)

    async def close(self) -> None:
        """Write what was handed in, then close the connection. May be called again."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.shield(self._ended)

    def statistics(self) -> JournalStatistics:
        """Return the counters."""
        writer = self._writer
        return JournalStatistics(
            submitted=self._submitted,
            committed=writer.committed,
            refused=writer.refused,
            failed=writer.failed,
            transactions=writer.transactions,
            retried_alone=writer.retried_alone,
            largest=writer.largest,
            waiting=self._waiting,
            waiting_bytes=self._waiting_bytes,
            commit_seconds=writer.commit_seconds,
        )

    def _is_beyond(self, factor: int) -> bool:
        limits = self._limits
        return (
            self._waiting >= limits.waiting * factor
            or self._waiting_bytes >= limits.waiting_bytes * factor
        )

    def _run(self) -> None:
        try:
            self._writer.run()
        finally:
            wake(self._loop, self._ended.set_result, None)

    def _announce(self, outcomes: list[Outcome]) -> None:
        wake(self._loop, announce, outcomes)

    def _report(self, outcomes: list[Outcome], size: int) -> None:
        wake(self._loop, self._settle, outcomes, size)

    def _settle(self, outcomes: list[Outcome], size: int) -> None:
        self._waiting -= len(outcomes)
        self._waiting_bytes -= size
        settle(outcomes)
        if self._room_waiters and not self._is_beyond(1):
            waiters, self._room_waiters = self._room_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


class _Writer:
    """What the writer thread does; its counters are read by others and written by it alone."""

    def __init__(
        self,
        *,
        database: Database,
        queue: SimpleQueue[_Piece | None],
        most: int,
        announce: Callable[[list[Outcome]], None],
        report: Callable[[list[Outcome], int], None],
    ) -> None:
        self._database = database
        self._queue = queue
        self._most = most
        self._announce = announce
        self._report = report
        self._connection: Connection | None = None
        self.committed = 0
        self.refused = 0
        self.failed = 0
        self.transactions = 0
        self.retried_alone = 0
        self.largest = 0
        self.commit_seconds = 0.0

    def run(self) -> None:
        """Write until the queue says that it ends."""
        while self._take_turn():
            pass
        if self._connection is not None:
            self._connection.close()

    def _take_turn(self) -> bool:
        # A turn is a call, so that the thread holds on to nothing of the last one while it waits.
        pieces, more = self._take()
        if pieces:
            outcomes = self._write(pieces)
            self._count(outcomes)
            self._report(outcomes, sum(piece.size for piece in pieces))
        return more

    def _take(self) -> tuple[list[_Piece], bool]:
        pieces: list[_Piece] = []
        piece = self._queue.get()
        while piece is not None:
            pieces.append(piece)
            if len(pieces) == self._most:
                return pieces, True
            try:
                piece = self._queue.get_nowait()
            except Empty:
                return pieces, True
        return pieces, False

    def _write(self, pieces: list[_Piece]) -> list[Outcome]:
        try:
            return self._transact(pieces)
        except _NoTransaction as failure:
            return [_failed(piece, self._meaning(failure)) for piece in pieces]
        except Exception as error:  # noqa: BLE001 - whatever it is, a piece's future will tell it
            if len(pieces) == 1:
                return [_failed(pieces[0], self._database.meaning(error))]
        self.retried_alone += 1
        return [outcome for piece in pieces for outcome in self._write([piece])]

    def _transact(self, pieces: list[_Piece]) -> list[Outcome]:
        """Run pieces in one transaction; on an error nothing of them is stored.

        Raises:
            _NoTransaction: There was none, for no fault of the pieces.
        """
        was_connected = self._connection is not None
        try:
            return self._attempt(pieces)
        except _NoTransaction as failure:
            # A connection that broke had its work undone by the server: worth one more try.
            broke = was_connected and self._connection is None
            if failure.in_doubt or not broke:
                raise
        return self._attempt(pieces)

    def _attempt(self, pieces: list[_Piece]) -> list[Outcome]:
        started = perf_counter()
        connection = self._begin()
        try:
            outcomes = _run_pieces(pieces, connection)
        except Exception as error:
            self._undo(connection)
            if self._connection is None:
                raise _NoTransaction(error) from error
            raise
        if any(piece.prepared is not None for piece in pieces):
            self._announce(outcomes)
        self._commit(connection)
        self.transactions += 1
        self.largest = max(self.largest, len(pieces))
        self.commit_seconds += perf_counter() - started
        return outcomes

    def _begin(self) -> Connection:
        try:
            connection = self._connected()
        except Exception as error:
            raise _NoTransaction(error) from error
        try:
            connection.begin()
        except Exception as error:
            # Locked by others, or lost: to wait once more for each piece would help none.
            self._undo(connection)
            raise _NoTransaction(error) from error
        return connection

    def _commit(self, connection: Connection) -> None:
        try:
            connection.commit()
        except Exception as error:
            self._undo(connection)
            if self._connection is None:
                raise _NoTransaction(error, in_doubt=True) from error
            raise

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._database.connect()
        return self._connection

    def _undo(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except Exception as error:  # noqa: BLE001 - a new connection takes this one's place
            logger.warning("a transaction could not be undone: %s", error)
            self._drop(connection)
        else:
            if connection.is_lost:
                self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._connection = None
        connection.close()

    def _meaning(self, failure: _NoTransaction) -> StoreError:
        if not failure.in_doubt:
            return self._database.meaning(failure.error)
        meaning = StoreUnavailable(
            "the connection was lost during the commit: what was written may be stored",
            in_doubt=True,
        )
        meaning.__cause__ = failure.error
        return meaning

    def _count(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.error is None:
                self.committed += 1
            elif isinstance(outcome.error, Refused):
                self.refused += 1
            else:
                self.failed += 1


class _NoTransaction(Exception):
    """There was no transaction, or it was cut off: no piece of work is to blame."""

    def __init__(self, error: Exception, *, in_doubt: bool = False) -> None:
        super().__init__()
        self.error = error
        self.in_doubt = in_doubt


def _run_pieces(pieces: list[_Piece], connection: Connection) -> list[Outcome]:
    """Run pieces in their order; those of one statement that follow each other, together."""
    outcomes: list[Outcome] = []
    for statement, group in groupby(pieces, key=_statement_of):
        if statement is None:
            outcomes += [_run_piece(piece, connection) for piece in group]
        else:
            outcomes += _run_together(list(group), statement, connection)
    return outcomes


def _statement_of(piece: _Piece) -> ClauseElement | None:
    return piece.work.statement if isinstance(piece.work, OneStatement) else None


def _run_together(
    pieces: list[_Piece], statement: ClauseElement, connection: Connection
) -> list[Outcome]:
    works: list[OneStatement[Any]] = [piece.work for piece in pieces]  # type: ignore[misc]
    touched = connection.run_each(statement, [work.values for work in works])
    return [
        _run_piece(piece._replace(work=partial(work.conclude, rows)), connection)
        for piece, work, rows in zip(pieces, works, touched, strict=True)
    ]


def _run_piece(piece: _Piece, connection: Connection) -> Outcome:
    try:
        return Outcome(piece.future, piece.work(connection), None, piece.prepared)
    except Refused as refusal:
        return _failed(piece, refusal)


def _failed(piece: _Piece, error: StoreError) -> Outcome:
    return Outcome(piece.future, None, error, piece.prepared)


def _nothing(connection: Connection) -> None:
    """Write nothing; as a piece of work it is done when all before it are."""
