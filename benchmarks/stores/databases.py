"""The databases that are measured: each with the newest schema, and one bare connection."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool
from sqlalchemy.sql import ClauseElement

from stores.sql.connection import Statements
from stores.sql.opening import open_database
from stores.sql.schema import bring_up_to_date
from tests.postgresql import running_postgresql

_DURABLE = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")
# As many as serve it best: SQLite has one writer, and others would only poll for its lock.
_CONNECTIONS = {"sqlite": 1, "postgresql": 16}


@dataclass(frozen=True, slots=True)
class Database:
    """A database of one engine.

    Attributes:
        name: The engine.
        url: For the stores.
        driver: A connection of the engine's own driver, which commits each statement at once, as
            durably as the stores do.
        statements: What is asked of the driver.
    """

    name: str
    url: str
    driver: Any
    statements: Statements

    def bound(self, statement: ClauseElement, **values: object) -> tuple[str, tuple[object, ...]]:
        """Returns a statement's text and its values in their order, for the driver."""
        compiled = self.statements[statement]
        return compiled.sql, compiled.bind(values)

    def asynchronous(self) -> AsyncEngine:
        """Returns SQLAlchemy's asynchronous engine on it, as durable as the stores are."""
        url = sa.make_url(self.url)
        if self.name == "sqlite":
            url = url.set(drivername="sqlite+aiosqlite")
        engine = create_async_engine(
            url,
            poolclass=AsyncAdaptedQueuePool,
            pool_size=_CONNECTIONS[self.name],
            max_overflow=0,
            pool_timeout=600,
        )
        if self.name == "sqlite":
            sa.event.listen(engine.sync_engine, "connect", _make_durable)
        return engine


@contextmanager
def databases(folder: Path) -> Iterator[list[Database]]:
    """Gives a fresh database of each engine."""
    with running_postgresql() as server:
        path = folder / "stores.db"
        urls = {"sqlite": f"sqlite:///{path}", "postgresql": server.url}
        statements = {}
        for name, url in urls.items():
            database = open_database(url, synchronous="FULL")
            bring_up_to_date(database)
            statements[name] = Statements(database.engine.dialect)
        with (
            closing(sqlite3.connect(path, isolation_level=None)) as on_sqlite,
            closing(psycopg.connect(server.driver_url, autocommit=True)) as on_postgresql,
        ):
            _make_durable(on_sqlite, None)
            drivers = {"sqlite": on_sqlite, "postgresql": on_postgresql}
            yield [Database(name, urls[name], drivers[name], statements[name]) for name in urls]


def _make_durable(driver: Any, _: object) -> None:
    cursor = driver.cursor()
    for pragma in _DURABLE:
        cursor.execute(pragma)
    cursor.close()
