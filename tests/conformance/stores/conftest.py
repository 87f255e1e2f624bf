"""Every test here runs on both engines, the PostgreSQL side on a real server."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from stores import Stores, open_stores
from stores.sql.opening import open_database
from stores.sql.schema import bring_up_to_date
from stores.sql.tables import metadata
from tests.postgresql import running_postgresql

ENGINES = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """Starts a PostgreSQL server for the session and gives the URL of its database."""
    with running_postgresql() as server:
        yield server.url


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gives a SQLite file with the newest schema and nothing in it, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    bring_up_to_date(open_database(f"sqlite:///{path}", synchronous="FULL"))
    return path


@pytest.fixture(scope="session")
def migrated_server(postgresql_server: str) -> str:
    """Gives a PostgreSQL database with the newest schema."""
    bring_up_to_date(open_database(postgresql_server, synchronous="FULL"))
    return postgresql_server


@pytest.fixture(params=ENGINES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Gives a database of either engine, with the newest schema and nothing in it."""
    if request.param == "sqlite":
        path = tmp_path / "stores.db"
        shutil.copy(request.getfixturevalue("migrated_file"), path)
        yield f"sqlite:///{path}"
    else:
        url = request.getfixturevalue("migrated_server")
        yield url
        empty(url)


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[Stores]:
    """Gives open stores of either engine, with nothing in them."""
    opened = await open_stores(database_url)
    yield opened
    await opened.close()


def empty(url: str) -> None:
    """Delete every row of a PostgreSQL database."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(f"DELETE FROM {table.name}")
