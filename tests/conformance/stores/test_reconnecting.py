"""What becomes of work and reads when PostgreSQL ends a connection under them."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
import sqlalchemy as sa

from stores import Stores, open_stores
from stores.errors import StoreUnavailable
from stores.records import HostRecord
from stores.sql.connection import Connection
from stores.sql.journal import SqlJournal
from stores.sql.opening import open_database
from tests.conformance.stores.conftest import empty
from tests.conformance.stores.samples import at

END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
)

# A row of this table ends its connection while it is committed.
TRAP = """
CREATE TABLE trap (name TEXT);
CREATE FUNCTION spring() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER spring AFTER INSERT ON trap
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION spring();
"""

ANSWER = sa.text("SELECT 42")
SPRING = sa.text("INSERT INTO trap VALUES ('sprung')")
END_THIS = sa.text("SELECT pg_terminate_backend(pg_backend_pid())")


@pytest.fixture
async def stores(migrated_server: str) -> AsyncIterator[Stores]:
    opened = await open_stores(migrated_server)
    yield opened
    await opened.close()
    empty(migrated_server)


@pytest.fixture
def trap(migrated_server: str) -> Iterator[str]:
    with psycopg.connect(migrated_server.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(TRAP)
        yield migrated_server
        connection.execute("DROP TABLE trap; DROP FUNCTION spring")


@pytest.fixture
async def journal(migrated_server: str) -> AsyncIterator[SqlJournal]:
    database = open_database(migrated_server, synchronous="FULL")
    journal = SqlJournal(database=database, loop=asyncio.get_running_loop())
    yield journal
    await journal.close()


def answer(connection: Connection) -> object:
    return connection.first(ANSWER, {})


async def test_ended_connections_are_replaced_unseen(stores: Stores, migrated_server: str) -> None:
    for round_ in range(3):
        await stores.hosts.register("host", f"start-{round_}", at(0))
        reads = await asyncio.gather(*(stores.hosts.get("host") for _ in range(10)))
        assert reads == [HostRecord("host", f"start-{round_}", at(0))] * 10
        with psycopg.connect(migrated_server.replace("+psycopg", "")) as connection:
            connection.execute(END_OTHERS)


async def test_connection_lost_within_a_transaction_fails_its_work_and_no_later_one(
    journal: SqlJournal,
) -> None:
    runs = 0

    def fatal(connection: Connection) -> object:
        nonlocal runs
        runs += 1
        return connection.first(END_THIS, {})

    with pytest.raises(StoreUnavailable) as caught:
        await journal.submit(fatal)
    assert caught.value.in_doubt is False
    assert runs == 1
    # With a connection from before, it is tried once more on a new one.
    assert await journal.submit(answer) == (42,)
    with pytest.raises(StoreUnavailable):
        await journal.submit(fatal)
    assert runs == 3
    assert await journal.submit(answer) == (42,)


@pytest.mark.usefixtures("trap")
async def test_connection_lost_during_a_commit_leaves_its_work_in_doubt(
    journal: SqlJournal,
) -> None:
    with pytest.raises(StoreUnavailable, match="may be stored") as caught:
        await journal.submit(lambda connection: connection.run(SPRING, {}))
    assert caught.value.in_doubt is True
    assert await journal.submit(answer) == (42,)
