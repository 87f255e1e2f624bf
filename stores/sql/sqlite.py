"""SQLite: a file in WAL mode."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.sql import ClauseElement

from stores.errors import ConstraintViolated, InvalidDatabaseUrl, StoreError, StoreUnavailable
from stores.limits import StoreLimits
from stores.sql.dialect import LOCK_TIMEOUT_SECONDS, Dialect, EngineState
from stores.sql.sqlite_vec import SqliteVec
from stores.sql.tables import item_columns, transcript_items

if TYPE_CHECKING:
    from stores.sql.vector_scoring import VectorScoring

# So many are told; more would say no more.
_FAULTS = 5

# How long a connection waits before it asks again for what SQLite does not wait for by itself.
_RETRY_SECONDS = 0.005

# The index gives what has all the terms newest first, as it goes: it ends when there is enough, and
# goes through lists where terms have no item in common. CROSS JOIN holds the planner to that.
_SEARCH: ClauseElement = (
    sa.select(*(sa.column(column.name) for column in (transcript_items.c.number, *item_columns)))
    .select_from(
        sa.text("transcript_search CROSS JOIN transcript_items ON number = transcript_search.rowid")
    )
    .where(
        sa.text("transcript_search MATCH replace(trim(:terms, '{}'), ',', ' ')"),
        sa.text("transcript_search.rowid >= :lowest AND transcript_search.rowid < :below"),
    )
    .order_by(sa.text("transcript_search.rowid DESC"))
    .limit(sa.bindparam("most"))
)

# A trigger would do as well, at twice the price: before a statement that has one, SQLite sets a
# savepoint, and at a savepoint the index writes to the file what it has gathered.
_INDEX_ITEM = sa.text(
    "INSERT INTO transcript_search (rowid, terms) VALUES"
    " ((SELECT number FROM transcript_items WHERE transcript_id = :transcript_id), :terms)"
)

_ADD_POSTINGS = sa.text(
    "INSERT INTO knowledge_postings (block, term, postings) VALUES (:block, :term, :postings)"
    # Bytes that are put together are taken for text, and stay the same bytes.
    " ON CONFLICT (block, term) DO UPDATE SET"
    " postings = CAST(knowledge_postings.postings || excluded.postings AS BLOB)"
)


class SqliteDialect(Dialect):
    """SQLite's ways."""

    paramstyle: Literal["qmark", "format"] = "qmark"
    # A deferred transaction that turns into a write fails at once when another one wrote in
    # between, whatever the timeout; an immediate one waits its turn before it reads anything.
    begin_write = "BEGIN IMMEDIATE"
    begin_snapshot = "BEGIN"
    search = search_newest = search_few = _SEARCH
    index_item = _INDEX_ITEM
    add_postings = _ADD_POSTINGS

    def __init__(self, *, synchronous: str) -> None:
        """Take the mode in which commits wait for the disk, `FULL` or `NORMAL`."""
        if synchronous not in ("FULL", "NORMAL"):
            raise ValueError(f"synchronous must be FULL or NORMAL, not {synchronous!r}")
        self._synchronous = synchronous
        self._extension = SqliteVec()

    def among(self, column: str, parameter: str) -> str:
        """Let JSON be taken apart."""
        array = f"'[' || trim(:{parameter}, '{{}}') || ']'"
        return f"{column} IN (SELECT value FROM json_each({array}))"  # noqa: S608 - constants

    def connect_arguments(self) -> dict[str, Any]:
        """Return how long to wait for locks; every thread keeps a connection of its own."""
        return {"timeout": LOCK_TIMEOUT_SECONDS}

    def set_up(self, driver: Any) -> None:
        """Turn on WAL, the chosen durability and foreign keys."""
        driver.isolation_level = None
        self._extension.load(driver)
        _turn_on_wal(driver)
        driver.execute(f"PRAGMA synchronous = {self._synchronous}")
        driver.execute("PRAGMA foreign_keys = ON")
        # Where fsync leaves data in the drive's cache (macOS), go through to the medium.
        driver.execute("PRAGMA fullfsync = ON")
        driver.execute("PRAGMA checkpoint_fullfsync = ON")

    def before_migration(self, driver: Any) -> None:
        """Let tables be copied: dropping the old one must not drop what refers to it."""
        driver.execute("PRAGMA foreign_keys = OFF")

    def after_migration(self, driver: Any) -> None:
        """Check the references that were not checked on the way."""
        broken = driver.execute("PRAGMA foreign_key_check").fetchall()
        if broken:
            raise StoreError(f"the migration would leave {len(broken)} references to nothing")

    def last_number(self, driver: Any, table: str, column: str) -> int:  # noqa: ARG002
        """Return what the table of counters has."""
        query = "SELECT seq FROM sqlite_sequence WHERE name = ?"
        row = driver.execute(query, (table,)).fetchone()
        return 0 if row is None else int(row[0])

    def set_last_number(
        self,
        driver: Any,
        table: str,
        column: str,  # noqa: ARG002
        last: int,
    ) -> None:
        """Change the table of counters, which has no row for a table without numbers."""
        driver.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        if last:
            driver.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))

    def vector_scoring(self, limits: StoreLimits) -> VectorScoring | None:
        """Return the extension's, if connections have it."""
        if self._extension.name is None:
            return None
        from stores.sql.sqlite_scoring import SqliteScoring

        return SqliteScoring(cache_bytes=limits.vector_cache_bytes)

    def inspect(self, driver: Any) -> EngineState:
        """Return the version, and what a look through all pages finds."""
        found = [str(row[0]) for row in driver.execute(f"PRAGMA quick_check({_FAULTS})")]
        faults = () if found == ["ok"] else tuple(found)
        return EngineState(
            engine=f"SQLite {sqlite3.sqlite_version}",
            now=None,
            faults=faults,
            vectors=self._extension.name,
            without_vectors=self._extension.missing,
        )

    def is_lost(self, driver: Any) -> bool:  # noqa: ARG002
        """Return False: a file does not go away."""
        return False

    def in_transaction(self, driver: Any) -> bool:
        """Return what the driver says."""
        return bool(driver.in_transaction)

    def translate(self, error: Exception) -> StoreError:
        """Tell a refused row from a file that cannot be used."""
        if isinstance(error, sqlite3.IntegrityError):
            return ConstraintViolated(f"the database refused a row: {error}")
        if isinstance(error, sqlite3.OperationalError):
            return StoreUnavailable(f"the database cannot be used now: {error}")
        return StoreError(f"work on the database failed: {type(error).__name__}: {error}")


def _turn_on_wal(driver: Any) -> None:
    """Turn on WAL, whoever else does so at the same moment.

    Only the first connection to a new file changes anything, and that it does alone: SQLite refuses
    a second one that is on the way to do the same at once, whatever the timeout, since two that
    waited for each other would wait forever.
    """
    give_up_at = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        try:
            driver.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                raise
        time.sleep(_RETRY_SECONDS)


def check_file(url: URL) -> None:
    """Check that a SQLite URL names a file that can be made.

    Raises:
        InvalidDatabaseUrl: It names no file.
        StoreUnavailable: The file's folder does not exist.
    """
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise InvalidDatabaseUrl(
            "a SQLite database must be a file, because several connections share it: "
            "use sqlite:///path/to/file"
        )
    if not Path(url.database).parent.is_dir():
        raise StoreUnavailable(
            f"the folder of the database file {url.database!r} does not exist: create it first"
        )
