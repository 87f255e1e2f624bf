"""The index follows the items: what leaves, what was there before, and how it is asked."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.sql import ClauseElement

from stores import Stores, open_stores
from stores.migrations.migrate import upgrade
from stores.records import RunFacts
from stores.sql.connection import Database
from stores.sql.journal import SqlJournal
from stores.sql.opening import open_database
from stores.sql.readers import Readers
from stores.sql.search_backfill import SearchBackfill
from stores.sql.search_terms import item_terms
from stores.sql.tables import transcript_items
from tests.conformance.stores.samples import accepted, an_item, told
from tests.conformance.stores.test_migrations import empty_url

__all__ = ["empty_url"]

IDS = sa.select(transcript_items.c.transcript_id).order_by(transcript_items.c.number)


@pytest.fixture
def database(database_url: str) -> Database:
    return open_database(database_url, synchronous="FULL")


async def found(stores: Stores, query: str) -> list[str]:
    page = await stores.transcript.search_workspace("acme", query, limit=1_000)
    return [item.transcript_id for item in page.items]


def check_index(database: Database) -> None:
    """Check that SQLite's index holds what the items have, and nothing else."""
    if database.engine.dialect.name == "sqlite":
        command = (
            "INSERT INTO transcript_search (transcript_search, rank) VALUES ('integrity-check', 1)"
        )
        with database.engine.begin() as connection:
            connection.execute(sa.text(command))


async def test_deleted_item_is_not_found_and_its_number_not_used_again(
    stores: Stores, database: Database
) -> None:
    await accepted(stores)
    await told(stores, "run-1", *(an_item(f"item-{n}", text="word 评审") for n in range(4)))
    first = await stores.transcript.search_workspace("acme", "word", limit=2)
    assert first.next_cursor is not None
    with database.engine.begin() as connection:
        connection.execute(
            sa.delete(transcript_items).where(
                transcript_items.c.transcript_id.in_(["item-1", "item-3"])
            )
        )
    check_index(database)
    assert await found(stores, "word 评审") == ["item-2", "item-0"]
    await told(stores, "run-1", an_item("new", text="word"))
    assert await found(stores, "word") == ["new", "item-2", "item-0"]
    rest = await stores.transcript.search_workspace("acme", "word", before=first.next_cursor)
    assert [item.transcript_id for item in rest.items] == ["item-0"]


async def unindexed(stores: Stores, database: Database, count: int) -> None:
    """Store items and take their terms away, as a change of the rules would."""
    await accepted(stores)
    items = [an_item(f"item-{n:03}", text=f"word {n}") for n in range(count)]
    await told(stores, "run-1", *items, an_item("silent", text=None))
    with database.engine.begin() as connection:
        connection.execute(sa.update(transcript_items).values(terms=None))
    assert await found(stores, "word") == []


async def fill(database: Database) -> None:
    """Give all items their terms."""
    loop = asyncio.get_running_loop()
    journal = SqlJournal(database=database, loop=loop)
    readers = Readers(database=database, loop=loop)
    backfill = SearchBackfill(journal=journal, readers=readers)
    backfill.start()
    await backfill.wait()
    await readers.close()
    await journal.close()


async def test_items_without_terms_get_them(stores: Stores, database: Database) -> None:
    await unindexed(stores, database, 120)
    # Two hosts that start at once.
    await asyncio.gather(fill(database), fill(database))
    assert await found(stores, "word") == [f"item-{n:03}" for n in reversed(range(120))]
    check_index(database)
    with database.engine.connect() as connection:
        statement = sa.select(transcript_items.c.terms).order_by(transcript_items.c.number)
        stored = [row[0] for row in connection.execute(statement)]
    assert stored[-1] is None
    expected = [item_terms(f"word {n}", "talk", "acme") for n in range(120)]
    assert [set(as_numbers(each)) for each in stored[:-1]] == [
        set(as_numbers(each)) for each in expected
    ]


def as_numbers(stored: str | list[int] | None) -> list[int]:
    if isinstance(stored, str):
        return [int(number) for number in stored.strip("{}").split(",")]
    return stored or []


async def test_giving_terms_goes_on_at_the_next_start(
    stores: Stores, database: Database, database_url: str
) -> None:
    await unindexed(stores, database, 120)
    # Ended at once, and anywhere between two pieces.
    for _ in range(3):
        await (await open_stores(database_url)).close()
    other = await open_stores(database_url)
    while len(await found(other, "word")) < 120:
        await other.journal.flush()
    # It goes on beside what is written.
    await told(stores, "run-1", an_item("new", text="word"))
    assert (await found(other, "word"))[0] == "new"
    await other.close()
    check_index(database)


async def test_items_from_before_there_were_terms_are_found(empty_url: str) -> None:
    database = open_database(empty_url, synchronous="FULL")
    with database.engine.connect() as connection:
        upgrade(connection, database.dialect, "0003")
    insert = sa.text(
        "INSERT INTO transcript_items (transcript_id, conversation_key, position, workspace, bot,"
        " event_id, role, kind, created_at, incomplete, text, content) VALUES (:id, :talk,"
        " :position, 'acme', '', 'event', 'user', 'message', :at, :no, :text, :content)"
    )
    # Times may run against the order of a conversation: the order stays.
    rows = [("b-2", "b", 2, 10), ("a-1", "a", 1, 20), ("b-1", "b", 1, 30), ("a-2", "a", 2, 40)]
    with database.engine.begin() as connection:
        for name, talk, position, at in rows:
            values = {"id": name, "talk": talk, "position": position, "at": at, "no": False}
            connection.execute(insert, {**values, "text": f"评审 {name}", "content": b"{}"})
        for talk in "ab":
            advance = (
                "INSERT INTO conversations (conversation_key, last_position) VALUES (:talk, 2)"
            )
            connection.execute(sa.text(advance), {"talk": talk})
    stores = await open_stores(empty_url)
    while len(await found(stores, "评审")) < 4:
        await stores.journal.flush()
    assert await found(stores, "评审") == ["a-2", "b-2", "b-1", "a-1"]
    page = await stores.transcript.search("b", "评审")
    assert [item.position for item in page.items] == [2, 1]
    assert page.items == (await stores.transcript.page("b")).items
    await accepted(stores)
    await stores.ledger.record(
        RunFacts(run_id="run-1", items=(an_item("new", conversation_key="a", text="评审"),))
    )
    newest = (await stores.transcript.search("a", "评审", limit=1)).items[0]
    assert (newest.transcript_id, newest.position) == ("new", 3)
    await stores.close()


def plan(database: Database, statement: ClauseElement) -> list[str]:
    """Return the steps of the plan that a search has, whatever it looks for."""
    compiled: Any = statement.compile(dialect=database.engine.dialect)
    values = {"terms": "{1,2}", "lowest": 1, "below": 20_000, "most": 10, "param_1": 0}
    parameters = tuple(values.get(name, 0) for name in compiled.positiontup)
    with database.engine.begin() as connection:
        if database.engine.dialect.name == "sqlite":
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", parameters)
            return [row[3] for row in rows]
        connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_generic_plan")
        rows = connection.exec_driver_sql(f"EXPLAIN {compiled}", parameters)
        return [row[0] for row in rows]


MANY = {
    "sqlite": "WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < 20000)",
    "postgresql": "WITH n AS (SELECT generate_series(1, 20000) AS n)",
}


def test_search_reads_the_index_whatever_it_looks_for(database: Database) -> None:
    engine = database.engine.dialect.name
    insert = (
        f"{MANY[engine]} INSERT INTO transcript_items (transcript_id, conversation_key, position,"
        " workspace, bot, event_id, role, kind, created_at, incomplete, text, content, terms)"
        " SELECT 'item-' || n, 'talk', n, '', '', '', '', '', 0, false, 'text', '', '{1,2,3}'"
        " FROM n"
    )
    with database.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(sa.text(insert))
        connection.execute(sa.text("ANALYZE"))
    dialect = database.dialect
    for statement in (dialect.search_newest, dialect.search, dialect.search_few):
        steps = plan(database, statement)
        if engine == "postgresql":
            assert any("Bitmap Index Scan on ix_transcript_items_search" in step for step in steps)
        else:
            # The index gives the order as well: nothing is sorted.
            first, second = steps
            assert first.startswith("SCAN transcript_search VIRTUAL TABLE INDEX")
            assert second == "SEARCH transcript_items USING INTEGER PRIMARY KEY (rowid=?)"
