"""A SQLite database with one table, for what lies below the stores."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from stores.sql.connection import Database
from stores.sql.journal import SqlJournal
from stores.sql.opening import open_database
from tests.unit.stores.facts import CREATE


@pytest.fixture
def database(tmp_path: Path) -> Database:
    database = open_database(f"sqlite:///{tmp_path / 'facts.db'}", synchronous="FULL")
    with database.engine.begin() as connection:
        connection.execute(sa.text(CREATE))
    return database


@pytest.fixture
async def journal(database: Database) -> AsyncIterator[SqlJournal]:
    journal = SqlJournal(database=database, loop=asyncio.get_running_loop())
    yield journal
    await journal.close()
