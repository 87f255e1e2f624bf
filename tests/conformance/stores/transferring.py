"""Databases to move things between, and odd things to be moved."""

import hashlib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from stores.blobs.names import BlobName
from stores.sql.connection import Database
from stores.sql.opening import open_database
from stores.sql.schema import bring_up_to_date
from stores.sql.tables import blobs, metadata, transcript_items

TEXTS = (
    "",
    " \t\r\n\v\f\x1c\x85\u2028\u2029 ",
    "\x01\x1f\x7f\x80\ufeff\ufffe\uffff\U0010ffff",
    'quotes " \' \\ \\u0000 {"a": [1, null]} $1 %s :x',
    "中文 日本語 한국어 ภาษาไทย e\u0301 é 👩🏽\u200d💻 𠮷",
    "x" * 20_000,
)
INTEGERS = (0, -1, 1, 2**53 + 1, 2**63 - 1, -(2**63))
BYTES = (b"", bytes(range(256)), b"\0" * 3, b"\xff\xfe", b"y" * 30_000, b"z")

_LARGE = ("text", "document", "value", "summary", "payload", "content", "envelope", "snapshot")

Make = Callable[[str], str]


def fill_oddly(database: Database, blob: bytes) -> BlobName:
    """Put six rows into every table, of all that its columns can hold, and return their blob."""
    name = BlobName.new(hashlib.sha256(blob).digest())
    filled: dict[sa.Column[Any], list[Any]] = {}
    with database.engine.begin() as connection:
        for table in metadata.sorted_tables:
            rows = [_odd_row(table, number, filled) for number in range(6)]
            if table is blobs:
                rows = [{**rows[0], "name": name.text, "sha256": name.sha256,
                         "size_bytes": len(blob), "condemned_at": None}]  # fmt: skip
            connection.execute(sa.insert(table), rows)
            filled.update({c: [row[c.name] for row in rows if c.name in row] for c in table.c})
    return name


def _odd_row(
    table: sa.Table, number: int, filled: dict[sa.Column[Any], list[Any]]
) -> dict[str, Any]:
    return {
        column.name: _odd_value(column, number, filled)
        for column in table.c
        if column is not transcript_items.c.terms
    }


def _odd_value(column: sa.Column[Any], number: int, filled: dict[sa.Column[Any], list[Any]]) -> Any:
    for reference in column.foreign_keys:
        values = filled[reference.column]
        return values[number % len(values)]
    if column.nullable and number == 3:
        return None
    if isinstance(column.type, sa.Boolean):
        return number % 2 == 0
    if isinstance(column.type, sa.SmallInteger):
        return number
    if isinstance(column.type, sa.Integer):
        # Counters are positive.
        return number * 7 + 1 if column.autoincrement is True else INTEGERS[number]
    if isinstance(column.type, sa.LargeBinary):
        return BYTES[number][: None if column.name in _LARGE else 200]
    # An index takes no more than some thousand bytes.
    return TEXTS[number][: None if column.name in _LARGE else 50]


@pytest.fixture
def make_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Gives what makes an empty database with the newest schema, of an engine, and its URL."""
    numbers = count()
    made: list[str] = []

    def make(engine: str) -> str:
        number = next(numbers)
        if engine == "sqlite":
            folder = tmp_path / f"database-{number}"
            folder.mkdir()
            url = f"sqlite:///{folder / 'runmesh.db'}"
        else:
            server: str = request.getfixturevalue("postgresql_server")
            name = f"transfer_{number}"
            _run(server, f"CREATE DATABASE {name}")
            made.append(name)
            url = server.replace("/postgres?", f"/{name}?")
        bring_up_to_date(open_database(url, synchronous="FULL"))
        return url

    yield make
    for name in made:
        _run(request.getfixturevalue("postgresql_server"), f"DROP DATABASE {name} WITH (FORCE)")


def _run(server: str, statement: str) -> None:
    with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(statement)
