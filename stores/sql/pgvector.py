"""Indexing vectors in PostgreSQL with the extension pgvector, where it can be had.

A knowledge base with more passages than are compared one by one has, for each model and length of
vectors, a table of these with an HNSW index: `vector_index_N`, listed in `vector_indexes`. They are
made when they are needed, and no migration knows them: a database without the extension lacks
nothing. `vector_index_blocks` says of each block at which revision its vectors were copied. So
who writes vectors has nothing to do here, and a search takes from the index what is there as it is
now, and compares the other blocks one by one.

Vectors are copied divided by their lengths, so that the inner product orders them, as numbers of 16
bits: what is found is scored once more by the vectors themselves.

This is one host's work at a time, in transactions of its own that hold up no writer. First all
blocks are copied, and then indexed at once, which takes a tenth of the time; later ones are added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import sql

from stores.sql.dialect import Stopping
from stores.sql.knowledge_blocks import BLOCK_BITS, BLOCK_SIZE

# The most numbers that a vector of an index may have.
MOST_DIMENSIONS = 4_000
# What scans on until there is enough that passes filters.
_LEAST_VERSION = (0, 8)
# Any constant will do; in its database it says "who indexes vectors".
_LOCK = 7_266_877_102
# An index that has less than this part of the blocks to be added is left as it is.
_WORTH_ADDING = 16
# Where more than this part is to be added, the index is made anew.
_WORTH_ANEW = 2
# The graph is made several times faster where it has room.
_BUILD_MEMORY = "1GB"

_TABLES = """
CREATE TABLE IF NOT EXISTS vector_indexes (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    base bigint NOT NULL,
    model text COLLATE "C" NOT NULL,
    dimensions integer NOT NULL,
    is_whole boolean NOT NULL,
    UNIQUE (base, model, dimensions)
);
CREATE TABLE IF NOT EXISTS vector_index_blocks (
    block bigint PRIMARY KEY,
    base bigint NOT NULL,
    revision bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS vector_index_blocks_base ON vector_index_blocks (base);
"""
_SIZES = (
    "SELECT b.number, count(*) FROM knowledge_bases b"
    " JOIN knowledge_blocks k ON k.base = b.number WHERE b.removed_at IS NULL GROUP BY b.number"
)
# One whose column went with the extension is as good as gone.
_BROKEN = (
    "SELECT base FROM vector_indexes i WHERE NOT EXISTS (SELECT FROM pg_attribute a"
    " WHERE a.attrelid = to_regclass('vector_index_' || i.number)"
    " AND a.attname = 'vector' AND NOT a.attisdropped)"
)
_STALE = (
    "SELECT b.number FROM knowledge_blocks b LEFT JOIN vector_index_blocks i ON i.block = b.number"
    " WHERE b.base = %s AND i.revision IS DISTINCT FROM b.vector_revision ORDER BY b.number"
)
_GONE = (
    "SELECT i.block FROM vector_index_blocks i WHERE i.base = %s"
    " AND NOT EXISTS (SELECT FROM knowledge_blocks b WHERE b.number = i.block)"
)
_VECTORS = (
    "SELECT number, model, vector FROM knowledge_vectors"
    " WHERE number >= %s AND number < %s ORDER BY number"
)
_NOTE = (
    "INSERT INTO vector_index_blocks (block, base, revision) VALUES (%s, %s, %s)"
    " ON CONFLICT (block) DO UPDATE SET revision = excluded.revision"
)
_NEW_INDEX = (
    "INSERT INTO vector_indexes (base, model, dimensions, is_whole)"
    " VALUES (%s, %s, %s, false) RETURNING number"
)


@dataclass(frozen=True, slots=True)
class Extension:
    """Whether the extension is there.

    Attributes:
        name: Its name and version; `None` where it is not, or too old.
        missing: What would change that; `None` where it is there, or made when it is needed.
    """

    name: str | None
    missing: str | None


def find_extension(driver: Any) -> Extension:
    """Look for the extension, on a driver connection."""
    row = driver.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
    if row is not None:
        return _usable(row[0])
    row = driver.execute(
        "SELECT a.default_version, r.rolsuper OR (v.trusted AND"
        " has_database_privilege(current_database(), 'CREATE'))"
        " FROM pg_available_extensions a JOIN pg_available_extension_versions v"
        " ON v.name = a.name AND v.version = a.default_version,"
        " pg_roles r WHERE a.name = 'vector' AND r.rolname = current_user"
    ).fetchone()
    if row is None:
        return Extension(None, "install the extension pgvector on the server")
    if not row[1]:
        return Extension(None, "let a superuser run 'CREATE EXTENSION vector' in the database")
    return _usable(row[0])


def _usable(version: str) -> Extension:
    least = ".".join(map(str, _LEAST_VERSION))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < _LEAST_VERSION:
        return Extension(None, f"update the extension pgvector from {version} to {least} or later")
    return Extension(f"pgvector {version}", None)


def index_vectors(engine: sa.Engine, unindexed_passages: int, stopping: Stopping) -> str | None:
    """Bring the indexes up to date; see `Dialect.index_vectors`."""
    pooled = engine.raw_connection()
    driver: Any = pooled.driver_connection
    try:
        stopping.interrupted_by(driver.cancel_safe)
        return VectorIndexes(driver, stopping).bring_up_to_date(unindexed_passages)
    finally:
        stopping.interrupted_by(None)
        # Closed, and with it the lock is free.
        pooled.close()


class VectorIndexes:
    """The indexes of a database, for one thread that keeps them."""

    def __init__(self, driver: psycopg.Connection[Any], stopping: Stopping) -> None:
        """Take a connection of its own, in autocommit."""
        self._driver = driver
        self._stopping = stopping

    def bring_up_to_date(self, unindexed_passages: int) -> str | None:
        """Index what is large, and drop what is not any more; return why not, if it cannot."""
        sizes = {base: blocks * BLOCK_SIZE for base, blocks in self._all(_SIZES)}
        large = sorted(base for base, size in sizes.items() if size > unindexed_passages)
        has_tables = self._value("SELECT to_regclass('vector_indexes') IS NOT NULL")
        if not large and not has_tables:
            return None
        if not self._value("SELECT pg_try_advisory_lock(%s)", _LOCK):
            return None
        if has_tables:
            # Not at once when it shrinks a little: it may grow again.
            kept = {base for base, size in sizes.items() if size * 2 > unindexed_passages}
            self._forget(kept)
        if not large:
            return None
        missing = self._extension()
        if missing is None:
            for base in large:
                self._fill(base)
        return missing

    def _extension(self) -> str | None:
        found = find_extension(self._driver)
        if found.missing is not None:
            return found.missing
        with self._driver.transaction():
            self._driver.execute("CREATE EXTENSION IF NOT EXISTS vector")
            self._driver.execute(_TABLES)
        return None

    def _forget(self, kept: set[int]) -> None:
        """Drop the indexes of other knowledge bases, and those that are broken."""
        having = {row[0] for row in self._all("SELECT DISTINCT base FROM vector_index_blocks")}
        having |= {row[0] for row in self._all("SELECT DISTINCT base FROM vector_indexes")}
        for base in having - kept | {row[0] for row in self._all(_BROKEN)}:
            with self._driver.transaction():
                for number in self._indexes(base).values():
                    self._driver.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table(number)))
                for name in ("vector_indexes", "vector_index_blocks"):
                    statement = sql.SQL("DELETE FROM {} WHERE base = %s")
                    self._driver.execute(statement.format(sql.Identifier(name)), (base,))

    def _fill(self, base: int) -> None:
        blocks = int(self._value("SELECT count(*) FROM knowledge_blocks WHERE base = %s", base))
        stale = [row[0] for row in self._all(_STALE, base)]
        is_whole = self._value(
            "SELECT bool_and(is_whole) FROM vector_indexes WHERE base = %s", base
        )
        if is_whole and len(stale) * _WORTH_ADDING <= blocks:
            return
        if is_whole and len(stale) * _WORTH_ANEW > blocks:
            self._begin_anew(base)
        for block in stale:
            if self._stopping.is_set:
                return
            started = perf_counter()
            self._copy(base, block)
            self._stopping.rest(perf_counter() - started)
        self._drop_blocks(base, [row[0] for row in self._all(_GONE, base)])
        self._index(base)

    def _begin_anew(self, base: int) -> None:
        with self._driver.transaction():
            self._driver.execute(
                "UPDATE vector_indexes SET is_whole = false WHERE base = %s", (base,)
            )
            for number in self._indexes(base).values():
                self._driver.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(_graph(number)))

    def _copy(self, base: int, block: int) -> None:
        """Let the indexes have a block's vectors as they are at one moment."""
        first = block << BLOCK_BITS
        with self._driver.transaction():
            self._driver.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            revision = self._value(
                "SELECT max(vector_revision) FROM knowledge_blocks WHERE number = %s", block
            )
            if revision is None:
                return
            indexes = self._indexes(base)
            for number in indexes.values():
                self._delete(number, block)
            found: defaultdict[tuple[str, int], list[tuple[int, bytes]]] = defaultdict(list)
            values = (first, first + BLOCK_SIZE)
            for row in self._driver.execute(_VECTORS, values, binary=True):
                found[row[1], len(row[2]) // 4].append((row[0], row[2]))
            for (model, dimensions), rows in found.items():
                if dimensions <= MOST_DIMENSIONS:
                    number = indexes.get((model, dimensions)) or self._make(base, model, dimensions)
                    self._send(number, dimensions, rows)
            self._driver.execute(_NOTE, (block, base, revision))

    def _make(self, base: int, model: str, dimensions: int) -> int:
        row = self._driver.execute(_NEW_INDEX, (base, model, dimensions)).fetchone()
        assert row is not None  # noqa: S101 - an insertion returns its row
        statement = "CREATE TABLE {} (number bigint PRIMARY KEY, vector halfvec({}) NOT NULL)"
        self._driver.execute(sql.SQL(statement).format(table(row[0]), sql.Literal(dimensions)))
        return int(row[0])

    def _send(self, number: int, dimensions: int, rows: Sequence[tuple[int, bytes]]) -> None:
        from stores.sql.pgvector_rows import packed_rows

        statement = sql.SQL("COPY {} (number, vector) FROM STDIN (FORMAT BINARY)")
        with self._driver.cursor().copy(statement.format(table(number))) as copy:
            copy.write(packed_rows(rows, dimensions))

    def _drop_blocks(self, base: int, blocks: Sequence[int]) -> None:
        for block in blocks:
            with self._driver.transaction():
                for number in self._indexes(base).values():
                    self._delete(number, block)
                self._driver.execute("DELETE FROM vector_index_blocks WHERE block = %s", (block,))

    def _delete(self, number: int, block: int) -> None:
        statement = sql.SQL("DELETE FROM {} WHERE number >= %s AND number < %s")
        first = block << BLOCK_BITS
        self._driver.execute(statement.format(table(number)), (first, first + BLOCK_SIZE))

    def _index(self, base: int) -> None:
        """Make the graphs that are not there yet; this may take minutes."""
        waiting = "SELECT number FROM vector_indexes WHERE base = %s AND NOT is_whole"
        for (number,) in self._all(waiting, base):
            if self._stopping.is_set:
                return
            with self._driver.transaction():
                self._driver.execute(f"SET LOCAL maintenance_work_mem = '{_BUILD_MEMORY}'")
                # Several would share memory, of which a server in a container has little.
                self._driver.execute("SET LOCAL max_parallel_maintenance_workers = 0")
                statement = "CREATE INDEX {} ON {} USING hnsw (vector halfvec_ip_ops)"
                self._driver.execute(sql.SQL(statement).format(_graph(number), table(number)))
                whole = "UPDATE vector_indexes SET is_whole = true WHERE number = %s"
                self._driver.execute(whole, (number,))

    def _indexes(self, base: int) -> dict[tuple[str, int], int]:
        rows = self._all(
            "SELECT model, dimensions, number FROM vector_indexes WHERE base = %s", base
        )
        return {(model, dimensions): number for model, dimensions, number in rows}

    def _all(self, statement: Any, *values: Any) -> list[Any]:
        return self._driver.execute(statement, values).fetchall()

    def _value(self, statement: Any, *values: Any) -> Any:
        (row,) = self._all(statement, *values)
        return row[0]


def table(number: int) -> sql.Identifier:
    """Return the name of an index's table."""
    return sql.Identifier(f"vector_index_{int(number)}")


def _graph(number: int) -> sql.Identifier:
    return sql.Identifier(f"vector_index_{int(number)}_graph")
