"""Records that operators keep: a row each, whose revision grows with each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from stores.errors import RevisionConflict
from stores.records import AgentRecord, BindingRecord, CatalogueItem
from stores.sql.connection import Connection, Row
from stores.sql.rows import Encoded

Record = TypeVar("Record", AgentRecord, BindingRecord, CatalogueItem)


class Kept(Generic[Record]):
    """The statements of one table of records, and writing to it.

    The table has the columns of an encoded record first, and then revision, created_at and
    updated_at.
    """

    def __init__(
        self, table: sa.Table, decode: Callable[[Row], Record], *, keys: tuple[str, ...] = ("id",)
    ) -> None:
        """Take the table, what decodes its rows, and the columns of its key."""
        is_one = sa.and_(*(table.c[key] == sa.bindparam(f"of_{key}") for key in keys))
        changing = [c.name for c in table.c if c.name not in (*keys, "created_at")]
        self.decode: Callable[[Row], Record] = decode
        self.select = sa.select(table).where(is_one)
        self.select_all = sa.select(table).order_by(*(table.c[key] for key in keys))
        self.delete = sa.delete(table).where(is_one)
        self._keys = keys
        self._changing = changing
        self._insert = sa.insert(table)
        self._update = (
            sa.update(table)
            .where(is_one)
            .values({name: sa.bindparam(f"to_{name}") for name in changing})
        )

    def place(self, *key: str) -> dict[str, Any]:
        """Return the values by which statements find one record."""
        return {f"of_{name}": value for name, value in zip(self._keys, key, strict=True)}

    def find(self, connection: Connection, *key: str) -> Record | None:
        """Return a stored record, or `None`."""
        row = connection.first(self.select, self.place(*key))
        return None if row is None else self.decode(row)

    def check(self, connection: Connection, kind: str, *key: str, expected: int | None) -> None:
        """Check that a record has the revision that is expected, if one is.

        Raises:
            RevisionConflict: It has another.
        """
        if expected is None:
            return
        stored = self.find(connection, *key)
        actual = 0 if stored is None else stored.revision
        if actual != expected:
            raise RevisionConflict(kind, key[-1], expected, actual)

    def write(self, connection: Connection, row: Encoded, now: int) -> tuple[Record, bool]:
        """Write an encoded record if it differs from the stored one; return it and whether."""
        place = self.place(*(row[key] for key in self._keys))
        stored = connection.first(self.select, place)
        if stored is None:
            whole = {**row, "revision": 1, "created_at": now, "updated_at": now}
            connection.run(self._insert, whole)
            return self.decode(tuple(whole.values())), True
        if stored[: len(row)] == tuple(row.values()):
            return self.decode(stored), False
        whole = {
            **row,
            "revision": stored[-3] + 1,
            "created_at": stored[-2],
            "updated_at": now,
        }
        values = {f"to_{name}": whole[name] for name in self._changing}
        connection.run(self._update, {**place, **values})
        return self.decode(tuple(whole.values())), True
