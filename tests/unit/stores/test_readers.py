"""The reading threads: answers, cancelled reads, errors and closing."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from stores.errors import StoreClosed, StoreUnavailable
from stores.sql.connection import Database
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from tests.unit.stores.facts import COUNT, NUMBERS, fact

# Counts to twenty thousand, which takes some milliseconds.
SLOW = sa.text(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
    "SELECT count(*) FROM n"
)


@pytest.fixture
async def readers(database: Database) -> AsyncIterator[Readers]:
    readers = Readers(database=database, loop=asyncio.get_running_loop())
    yield readers
    await readers.close()


async def test_many_reads_get_their_own_answers(readers: Readers, journal: SqlJournal) -> None:
    for number in range(50):
        _ = journal.submit(fact(f"fact-{number}", number))
    await journal.flush()
    reads = [readers.first(NUMBERS, {"of_name": f"fact-{number}"}) for number in range(50)]
    assert await asyncio.gather(*reads) == [(number,) for number in range(50)]


async def test_read_sees_all_that_was_reported(readers: Readers, journal: SqlJournal) -> None:
    for number in range(20):
        await journal.submit(fact(f"fact-{number}"))
        assert await readers.first(COUNT, {}) == (number + 1,)


async def test_reads_do_not_wait_for_a_transaction(readers: Readers, journal: SqlJournal) -> None:
    other = journal._writer._database.connect()
    other.begin()
    fact("not yet")(other)
    assert await readers.first(COUNT, {}) == (0,)
    other.rollback()
    other.close()


async def test_cancelled_reads_leave_the_readers_whole(readers: Readers) -> None:
    tasks = [asyncio.create_task(readers.first(SLOW, {})) for _ in range(30)]
    await asyncio.sleep(0)
    for task in tasks[1::2]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes[::2] == [(20_000,)] * 15
    assert await readers.first(COUNT, {}) == (0,)


async def test_failed_read_is_told_and_the_next_one_answered(readers: Readers) -> None:
    with pytest.raises(StoreUnavailable, match="no such table"):
        await readers.first(sa.text("SELECT 1 FROM nowhere"), {})
    assert await readers.first(COUNT, {}) == (0,)


async def test_read_that_was_cancelled_in_time_is_left_out(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    readers = Readers(database=database, loop=asyncio.get_running_loop(), threads=1)
    busy = asyncio.create_task(readers.first(SLOW, {}))
    # Would tell of its failure, did it run.
    left_out = asyncio.create_task(readers.first(sa.text("SELECT 1 FROM nowhere"), {}))
    await asyncio.sleep(0)
    left_out.cancel()
    assert await busy == (20_000,)
    await readers.close()
    assert caplog.records == []


async def test_closing_is_waited_for_by_all_who_close(readers: Readers) -> None:
    task = asyncio.create_task(readers.first(SLOW, {}))
    await asyncio.sleep(0)
    impatient = asyncio.create_task(readers.close())
    await asyncio.sleep(0)
    impatient.cancel()
    await readers.close()
    assert await task == (20_000,)


async def test_closing_answers_what_waits(readers: Readers) -> None:
    tasks = [asyncio.create_task(readers.first(SLOW, {})) for _ in range(10)]
    await asyncio.sleep(0)
    await asyncio.gather(readers.close(), readers.close())
    assert await asyncio.gather(*tasks) == [(20_000,)] * 10
    with pytest.raises(StoreClosed):
        await readers.first(COUNT, {})
