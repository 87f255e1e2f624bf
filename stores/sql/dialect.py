"""Where SQLite and PostgreSQL differ.

Every difference is here and in the two modules that fill this class in, `sqlite` and
`postgresql`; the rest of the layer is the same Core code on both. What differs: column types, how
a connection is set up, how a write transaction begins, and what a driver's errors mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from types import MappingProxyType
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql import ClauseElement

from stores.errors import StoreError
from stores.limits import StoreLimits

# Identifiers and keys compare and sort by their bytes, whatever the database's locale is.
KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

# SQLite counts rows by itself only in a column declared exactly INTEGER PRIMARY KEY.
COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# Numbers in braces: on SQLite as text, from which its index takes the digits.
TERMS = sa.Text().with_variant(postgresql.ARRAY(sa.Integer), "postgresql")

# How long a connection waits for another one's transaction before it gives up.
LOCK_TIMEOUT_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """What an engine says of itself.

    Attributes:
        engine: Its name and version.
        now: Its clock, in microseconds since 1970; `None` for one that has none of its own.
        faults: What is broken in the database's files, in its words; the first few.
        vectors: What compares vectors inside the database; `None` where nothing does.
        without_vectors: What would change that; `None` where something does.
    """

    engine: str
    now: int | None
    faults: tuple[str, ...]
    vectors: str | None = None
    without_vectors: str | None = None


class Stopping:
    """Says to work in a thread that it is to end; for any thread."""

    def __init__(self) -> None:
        """Let it go on."""
        self._event = Event()
        self._interrupt: Callable[[], None] | None = None

    @property
    def is_set(self) -> bool:
        """Whether it is to end."""
        return self._event.is_set()

    def interrupted_by(self, interrupt: Callable[[], None] | None) -> None:
        """Take what ends the statement that runs."""
        self._interrupt = interrupt

    def stop(self) -> None:
        """Let it end. May be called again."""
        self._event.set()
        interrupt = self._interrupt
        if interrupt is not None:
            interrupt()

    def rest(self, seconds: float) -> None:
        """Wait, but not beyond `stop`."""
        self._event.wait(seconds)


class Dialect(ABC):
    """One engine's ways.

    Attributes:
        paramstyle: The driver's positional style, so that rows go in as plain tuples.
        begin_write: SQL that begins a write transaction. It waits for other processes' write
            transactions: those of one database are one at a time, on either engine. That is
            what lets a piece of work read, decide and write without a race, keeps positions in
            the order of commits, and leaves no deadlock to happen.
        begin_snapshot: SQL that begins a transaction whose reads all see one moment, and which
            waits for nobody.
        search: A query for the newest transcript items that have all of some terms, as
            `stores.sql.search` asks it.
        search_newest: The same, for some ten thousand items, many of which may have the terms.
        search_few: The same, for when one of the terms is known to have few items.
        index_item: Adds an item to the index for searching, or `None` where the engine does that
            by itself.
        add_postings: Adds postings to a term of a block, behind those that it has.
        read_bytes: What the driver's cursor is told for a query that gives many bytes.
        indexes_vectors: Whether `index_vectors` may have something to do.
        accept_at_once: What `stores.sql.acceptance` says, or `None` where an acceptance is as
            well written in several statements.
    """

    paramstyle: Literal["qmark", "format"]
    begin_write: str
    begin_snapshot: str
    search: ClauseElement
    search_newest: ClauseElement
    search_few: ClauseElement
    add_postings: ClauseElement
    index_item: ClauseElement | None = None
    accept_at_once: ClauseElement | None = None
    indexes_vectors: bool = False
    read_bytes: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def connect_arguments(self) -> dict[str, Any]:
        """Return the driver's keyword arguments for a connection."""

    @abstractmethod
    def set_up(self, driver: Any) -> None:
        """Prepare a new driver connection; after it, transactions begin only by `begin_write`."""

    @abstractmethod
    def among(self, column: str, parameter: str) -> str:
        """Return the condition that a column is one of several integers.

        The parameter's value is these, with commas between them, in braces.
        """

    def begin(self, driver: Any) -> None:
        """Begin a write transaction on a driver connection."""
        driver.execute(self.begin_write)

    def run_each(self, cursor: Any, sql: str, rows: Sequence[tuple[Any, ...]]) -> Sequence[int]:
        """Run a statement once for each row, and return how many rows each run touched."""
        touched = []
        for row in rows:
            cursor.execute(sql, row)
            touched.append(int(cursor.rowcount))
        return touched

    @abstractmethod
    def before_migration(self, driver: Any) -> None:
        """Prepare a connection that will migrate, before its transaction begins."""

    @abstractmethod
    def after_migration(self, driver: Any) -> None:
        """Check what was migrated, before it is committed."""

    @abstractmethod
    def last_number(self, driver: Any, table: str, column: str) -> int:
        """Return the last number that a table's counter gave, 0 for none."""

    @abstractmethod
    def set_last_number(self, driver: Any, table: str, column: str, last: int) -> None:
        """Let a table's counter go on behind a number, from when the transaction commits."""

    @abstractmethod
    def vector_scoring(self, limits: StoreLimits) -> Any:
        """Return what compares vectors inside the database; `None` where nothing can.

        It is a `VectorScoring` of `stores.sql.vector_scoring`, which is built on this module, and
        works with numpy, which is imported here.
        """

    def index_vectors(
        self,
        engine: sa.Engine,  # noqa: ARG002
        limits: StoreLimits,  # noqa: ARG002
        stopping: Stopping,  # noqa: ARG002
    ) -> str | None:
        """Bring what `vector_scoring` finds vectors by up to date, in this thread.

        Returns:
            Why it cannot, and what would change that; `None` if it could.
        """
        return None

    @abstractmethod
    def inspect(self, driver: Any) -> EngineState:
        """Return what the engine says of itself and of the database's files."""

    @abstractmethod
    def is_lost(self, driver: Any) -> bool:
        """Return whether a connection cannot be used any more after an error."""

    @abstractmethod
    def in_transaction(self, driver: Any) -> bool:
        """Return whether a transaction is open, a failed one as well."""

    @abstractmethod
    def translate(self, error: Exception) -> StoreError:
        """Return the store error that a driver's error means."""
