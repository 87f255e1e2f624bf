"""Tables as an export has them: which, their columns, and a row as a line of JSON."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from stores.sql.connection import Connection, Row
from stores.sql.search_terms import item_terms
from stores.sql.tables import metadata, transcript_items
from stores.sql.values import INTEGER_MAX, is_storable

# What a page should hold at most: with large values it has few rows, with small ones many.
_PAGE_BYTES: Final = 4 * 1024 * 1024
_PAGE_ROWS: Final = 1_000
_FIRST_PAGE_ROWS: Final = 16

# Made by the engine's index from the text, which each has in a form of its own.
_DERIVED: Final = transcript_items.c.terms


def _kind(column: sa.Column[Any]) -> str:
    kinds = {sa.Boolean: "bool", sa.LargeBinary: "bytes", sa.Integer: "int", sa.Text: "text"}
    return next(kind for type_, kind in kinds.items() if isinstance(column.type, type_))


_TYPES: Final[Mapping[str, type]] = {"bool": bool, "bytes": str, "int": int, "text": str}


@dataclass(frozen=True, slots=True)
class MovedTable:
    """One table, and the statements that move it.

    Attributes:
        table: The table.
        columns: Those that are moved.
        kinds: Their types in an export.
    """

    table: sa.Table
    columns: tuple[sa.Column[Any], ...]
    kinds: tuple[str, ...]
    select: sa.Select[Any]
    select_more: sa.Select[Any]
    insert: sa.Insert
    key: tuple[int, ...]

    @classmethod
    def of(cls, table: sa.Table) -> MovedTable:
        """Return how a table is moved."""
        columns = tuple(column for column in table.c if column is not _DERIVED)
        key = tuple(table.primary_key.columns)
        first = sa.select(*columns).order_by(*key).limit(sa.bindparam("most"))
        behind = sa.tuple_(*(sa.bindparam(f"after_{c.name}", type_=c.type) for c in key))
        return cls(
            table=table,
            columns=columns,
            kinds=tuple(_kind(column) for column in columns),
            select=first,
            select_more=first.where(sa.tuple_(*key) > behind),
            insert=sa.insert(table)
            .inline()
            .values({c.name: sa.bindparam(c.name) for c in table.c}),
            key=tuple(columns.index(column) for column in key),
        )

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    @property
    def counter(self) -> str | None:
        """The column that the engine counts by itself, if there is one."""
        key = list(self.table.primary_key.columns)
        return key[0].name if key[0].autoincrement is True else None

    def description(self) -> list[list[str]]:
        """Return name and type of each column, as a manifest has them."""
        return [[c.name, kind] for c, kind in zip(self.columns, self.kinds, strict=True)]

    def pages(self, connection: Connection) -> Iterator[list[bytes]]:
        """Give all rows as lines, a page at a time, in the order of the primary key."""
        statement, most = self.select, _FIRST_PAGE_ROWS
        values: dict[str, Any] = {}
        while rows := connection.all(statement, {**values, "most": most}):
            lines = [self._encode(row) for row in rows]
            yield lines
            statement = self.select_more
            values = {f"after_{self.columns[at].name}": rows[-1][at] for at in self.key}
            most = _next_page(len(rows), sum(map(len, lines)))

    def _encode(self, row: Row) -> bytes:
        values = [
            None if value is None else _ENCODERS[kind](value)
            for kind, value in zip(self.kinds, row, strict=True)
        ]
        return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    def decode(self, line: bytes) -> dict[str, Any]:
        """Return the row of a line, as it is inserted.

        Raises:
            ValueError: The line is no row of this table.
        """
        values = json.loads(line)
        if not isinstance(values, list) or len(values) != len(self.columns):
            raise ValueError(f"is no list of {len(self.columns)} values")
        row = {
            column.name: _decode(column, kind, value)
            for column, kind, value in zip(self.columns, self.kinds, values, strict=True)
        }
        if self.table is transcript_items:
            row["terms"] = item_terms(row["text"], row["conversation_key"], row["workspace"])
        return row


_ENCODERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "bool": bool,
    "bytes": lambda value: b64encode(value).decode("ascii"),
    "int": int,
    "text": str,
}

MOVED_TABLES: Final[Sequence[MovedTable]] = tuple(map(MovedTable.of, metadata.sorted_tables))


def _decode(column: sa.Column[Any], kind: str, value: Any) -> Any:
    if value is None:
        if not column.nullable:
            raise ValueError(f"has no {column.name}")
        return None
    # A bool is an int to `isinstance`, and none to a database.
    is_of_kind: bool = type(value) is _TYPES[kind]
    if not is_of_kind or not is_storable(value):
        raise ValueError(f"has a {column.name} that is no {kind}")
    if kind == "bytes":
        return b64decode(value, validate=True)
    if kind == "int" and not -INTEGER_MAX - 1 <= value <= INTEGER_MAX:
        raise ValueError(f"has a {column.name} of more than 64 bits")
    return value


def _next_page(rows: int, size: int) -> int:
    # As many as would have filled a page, but never many more than before.
    fitting = _PAGE_BYTES * rows // max(size, 1)
    return max(1, min(fitting, rows * 4, _PAGE_ROWS))
