"""PostgreSQL, by psycopg 3."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import sqlalchemy as sa
from psycopg.pq import TransactionStatus

from stores.errors import ConstraintViolated, StoreError, StoreUnavailable
from stores.limits import StoreLimits
from stores.sql.acceptance import accept_at_once
from stores.sql.dialect import LOCK_TIMEOUT_SECONDS, Dialect, EngineState, Stopping
from stores.sql.pgvector import find_extension, index_vectors
from stores.sql.tables import item_columns, transcript_items

if TYPE_CHECKING:
    from stores.sql.vector_scoring import VectorScoring

# Any constant will do; in its database it says "a write transaction of runmesh".
_WRITE_LOCK = 7_266_877_101

# The index knows no order: it gives all that has the terms, which must then be sorted. So it is
# asked for one block of numbers after the other, newest first, until there is enough: in small
# blocks, of which one is quickly sorted, while there may be much, and then in large ones, because
# each asks anew for the rarest term. `number + 0` keeps the planner from walking through the
# numbers themselves, whatever it thinks of the terms.
_TERMS = "CAST(:terms AS integer[])"
_SMALL, _LARGE = 12, 16
# As a term: below zero, where no other is, and large blocks below all small ones.
_SMALL_BLOCK = f"(-1 - (number >> {_SMALL}))::integer"
_LARGE_BLOCK = f"(-1073741825 - (number >> {_LARGE}))::integer"


def _having(terms: str) -> sa.Select[Any]:
    return (
        sa.select(transcript_items.c.number, *item_columns)
        .where(
            sa.text(f"(terms || ARRAY[{_SMALL_BLOCK}, {_LARGE_BLOCK}]) @> {terms}"),
            sa.text("number + 0 >= :lowest AND number + 0 < :below"),
        )
        .order_by(sa.text("number + 0 DESC"))
        .limit(sa.bindparam("most"))
    )


def _block_by_block(block: str, bits: int) -> sa.Select[Any]:
    # One number stands for the block that it is the first of.
    firsts = (
        sa.func.generate_series(
            sa.text(f"((CAST(:below AS bigint) - 1) >> {bits}) << {bits}"),
            sa.text(f"(CAST(:lowest AS bigint) >> {bits}) << {bits}"),
            sa.text(f"-{1 << bits}"),
        )
        .table_valued("first")
        .render_derived(name="blocks")
    )
    term = block.replace("number", "first")
    found = _having(f"({_TERMS} || {term})").lateral("found")
    return sa.select(*found.c).join_from(firsts, found, sa.true()).limit(sa.bindparam("most"))


_ADD_POSTINGS = sa.text(
    "INSERT INTO knowledge_postings (block, term, postings) VALUES (:block, :term, :postings)"
    " ON CONFLICT (block, term) DO UPDATE SET"
    " postings = knowledge_postings.postings || excluded.postings"
)


class PostgresqlDialect(Dialect):
    """PostgreSQL's ways."""

    paramstyle: Literal["qmark", "format"] = "format"
    search_newest = _block_by_block(_SMALL_BLOCK, _SMALL)
    search = _block_by_block(_LARGE_BLOCK, _LARGE)
    search_few = _having(_TERMS)
    add_postings = _ADD_POSTINGS
    accept_at_once = accept_at_once()
    indexes_vectors = True
    # As text each byte would be two digits.
    read_bytes = MappingProxyType({"binary": True})
    begin_snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    # Two statements, one round trip.
    begin_write = f"BEGIN; SELECT pg_advisory_xact_lock({_WRITE_LOCK})"

    def among(self, column: str, parameter: str) -> str:
        """Give it an array."""
        return f"{column} = ANY(CAST(:{parameter} AS bigint[]))"

    def connect_arguments(self) -> dict[str, Any]:
        """Return settings under which a host that stands still cannot hold up the others."""
        milliseconds = LOCK_TIMEOUT_SECONDS * 1_000
        return {
            "connect_timeout": LOCK_TIMEOUT_SECONDS,
            # A server that vanishes without a word must not hold up its clients for the two hours
            # that the system would wait; none of it matters to unix sockets.
            "keepalives_idle": LOCK_TIMEOUT_SECONDS // 2,
            "keepalives_interval": 1,
            "keepalives_count": LOCK_TIMEOUT_SECONDS // 2,
            "tcp_user_timeout": milliseconds,
            "client_encoding": "UTF8",
            "options": f"-c idle_in_transaction_session_timeout={milliseconds}"
            f" -c lock_timeout={milliseconds}",
        }

    def set_up(self, driver: Any) -> None:
        """Leave transactions to `begin_write`."""
        driver.autocommit = True

    def run_each(self, cursor: Any, sql: str, rows: Sequence[tuple[Any, ...]]) -> Sequence[int]:
        """Send all, then take all answers: one way to the server and back."""
        if len(rows) == 1:
            return super().run_each(cursor, sql, rows)
        cursor.executemany(sql, rows, returning=True)
        touched = [int(cursor.rowcount)]
        while cursor.nextset():
            touched.append(int(cursor.rowcount))
        return touched

    def before_migration(self, driver: Any) -> None:
        """Do nothing: tables are changed in place."""

    def after_migration(self, driver: Any) -> None:
        """Do nothing: references were checked on the way."""

    def last_number(self, driver: Any, table: str, column: str) -> int:
        """Return the state of the column's sequence; what is not given yet was not given."""
        name = _sequence(driver, table, column)
        query = f"SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM {name}"  # noqa: S608
        row = driver.execute(query).fetchone()
        return int(row[0])

    def set_last_number(self, driver: Any, table: str, column: str, last: int) -> None:
        """Restart the column's sequence, which unlike `setval` a rollback undoes."""
        name = _sequence(driver, table, column)
        driver.execute(f"ALTER SEQUENCE {name} RESTART WITH {last + 1}")

    def vector_scoring(self, limits: StoreLimits) -> VectorScoring | None:
        """Return what searches by the indexes that there are."""
        from stores.sql.postgresql_scoring import PostgresqlScoring

        return PostgresqlScoring(unindexed_passages=limits.unindexed_passages)

    def index_vectors(
        self, engine: sa.Engine, limits: StoreLimits, stopping: Stopping
    ) -> str | None:
        """Index those of large knowledge bases; see `stores.sql.pgvector`."""
        return index_vectors(engine, limits.unindexed_passages, stopping)

    def inspect(self, driver: Any) -> EngineState:
        """Return the version, the server's clock, and what its checksums found so far."""
        version, now, failures = driver.execute(
            "SELECT current_setting('server_version'),"
            " (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,"
            " (SELECT coalesce(checksum_failures, 0) FROM pg_stat_database"
            " WHERE datname = current_database())"
        ).fetchone()
        faults = (f"{failures} pages had a wrong checksum",) if failures else ()
        found = find_extension(driver)
        return EngineState(
            engine=f"PostgreSQL {version}",
            now=int(now),
            faults=faults,
            vectors=found.name,
            without_vectors=found.missing,
        )

    def is_lost(self, driver: Any) -> bool:
        """Return what the driver says."""
        return bool(driver.closed)

    def in_transaction(self, driver: Any) -> bool:
        """Return whether the server has one open."""
        return bool(driver.info.transaction_status != TransactionStatus.IDLE)

    def translate(self, error: Exception) -> StoreError:
        """Tell a refused row from a server that cannot be used."""
        # The further lines of a message quote the row, and with it what users wrote.
        message = str(error).partition("\n")[0]
        if isinstance(error, psycopg.IntegrityError):
            return ConstraintViolated(f"the database refused a row: {message}")
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return StoreUnavailable(f"the database cannot be used now: {message}")
        return StoreError(f"work on the database failed: {type(error).__name__}: {message}")


def _sequence(driver: Any, table: str, column: str) -> str:
    row = driver.execute("SELECT pg_get_serial_sequence(%s, %s)", (table, column)).fetchone()
    return str(row[0])
