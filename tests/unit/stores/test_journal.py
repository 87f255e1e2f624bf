"""The journal: order, shared commits, isolation, backpressure, and what becomes of futures."""

import asyncio
import gc
import logging
import sqlite3
from collections.abc import Callable

import pytest

from stores.errors import (
    ConstraintViolated,
    Refused,
    StoreClosed,
    StoreError,
    StoreOverloaded,
    StoreUnavailable,
)
from stores.sql import delivery
from stores.sql.connection import Connection, Database
from stores.sql.journal import JournalLimits, SqlJournal
from tests.unit.stores.facts import NUMBERS, Gate, fact, names_in, refusal


async def settled(*futures: asyncio.Future[str]) -> list[object]:
    return [
        outcome if isinstance(outcome, str) else type(outcome)
        for outcome in await asyncio.gather(*futures, return_exceptions=True)
    ]


async def test_work_runs_in_the_order_it_was_submitted(
    journal: SqlJournal, database: Database
) -> None:
    names = [f"fact-{number}" for number in range(500)]
    futures = [journal.submit(fact(name)) for name in names]
    assert await asyncio.gather(*futures) == names
    assert names_in(database) == names


async def test_a_reported_fact_is_seen_by_others(journal: SqlJournal, database: Database) -> None:
    for number in range(5):
        await journal.submit(fact(f"fact-{number}"))
        assert len(names_in(database)) == number + 1


async def test_work_sees_what_earlier_work_of_its_transaction_wrote(journal: SqlJournal) -> None:
    gate = Gate()
    waits = journal.submit(gate)
    await gate.entered()
    first = journal.submit(fact("fact", 7))
    second = journal.submit(lambda connection: connection.first(NUMBERS, {"of_name": "fact"}))
    gate.open()
    await waits
    assert (await first, await second) == ("fact", (7,))
    assert journal.statistics().transactions == 2


async def test_what_waits_shares_one_commit_and_one_wake_up(
    journal: SqlJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakes = []
    wake = delivery.wake

    def counting(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *more: object) -> None:
        wakes.append(call)
        wake(loop, call, *more)

    monkeypatch.setattr("stores.sql.journal.wake", counting)
    gate = Gate()
    waits = journal.submit(gate)
    await gate.entered()
    futures = [journal.submit(fact(f"fact-{number}")) for number in range(300)]
    gate.open()
    await asyncio.gather(waits, *futures)
    statistics = journal.statistics()
    assert (statistics.transactions, statistics.largest) == (2, 300)
    assert len(wakes) == 2


async def test_a_transaction_is_bounded(database: Database) -> None:
    journal = SqlJournal(
        database=database, loop=asyncio.get_running_loop(), limits=JournalLimits(pieces=10)
    )
    gate = Gate()
    waits = journal.submit(gate)
    await gate.entered()
    futures = [journal.submit(fact(f"fact-{number}")) for number in range(35)]
    gate.open()
    await asyncio.gather(waits, *futures)
    assert (journal.statistics().transactions, journal.statistics().largest) == (5, 10)
    await journal.close()


async def test_a_bad_row_fails_its_own_writer_alone(
    journal: SqlJournal, database: Database
) -> None:
    await journal.submit(fact("taken"))
    gate = Gate()
    waits = journal.submit(gate)
    await gate.entered()
    names = ["a", "b", "taken", "c", "taken", "d"]
    futures = [journal.submit(fact(name)) for name in names]
    gate.open()
    await waits
    assert await settled(*futures) == ["a", "b", ConstraintViolated, "c", ConstraintViolated, "d"]
    assert names_in(database) == ["taken", "a", "b", "c", "d"]
    statistics = journal.statistics()
    assert (statistics.failed, statistics.retried_alone) == (2, 1)
    assert statistics.committed == 6


async def test_a_bad_row_takes_what_its_own_piece_wrote_with_it(
    journal: SqlJournal, database: Database
) -> None:
    await journal.submit(fact("taken"))

    def two_facts(connection: Connection) -> None:
        fact("new")(connection)
        fact("taken")(connection)

    with pytest.raises(ConstraintViolated):
        await journal.submit(two_facts)
    assert names_in(database) == ["taken"]


async def test_a_refusal_disturbs_nobody(journal: SqlJournal, database: Database) -> None:
    gate = Gate()
    waits = journal.submit(gate)
    await gate.entered()
    first = journal.submit(fact("a"))
    refused = journal.submit(refusal)
    last = journal.submit(fact("b"))
    gate.open()
    await waits
    with pytest.raises(Refused):
        await refused
    assert (await first, await last) == ("a", "b")
    statistics = journal.statistics()
    assert (statistics.refused, statistics.retried_alone, statistics.transactions) == (1, 0, 2)


async def test_a_fault_in_work_is_told_as_a_store_error_with_its_cause(
    journal: SqlJournal, database: Database
) -> None:
    def faulty(connection: Connection) -> None:
        fact("lost")(connection)
        raise ZeroDivisionError("a fault")

    with pytest.raises(StoreError, match="ZeroDivisionError: a fault") as caught:
        await journal.submit(faulty)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert await journal.submit(fact("next")) == "next"
    assert names_in(database) == ["next"]


async def test_a_cancelled_waiter_breaks_nothing(journal: SqlJournal, database: Database) -> None:
    gate = Gate()
    waits = journal.submit(gate)
    await gate.entered()

    async def write(name: str) -> str:
        return await journal.submit(fact(name))

    tasks = [asyncio.create_task(write(f"fact-{number}")) for number in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    gate.open()
    await waits
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(each, asyncio.CancelledError) for each in outcomes] == [True, False] * 10
    assert len(names_in(database)) == 20
    assert journal.statistics().waiting == 0


async def test_failure_whose_waiter_was_cancelled_is_logged(
    journal: SqlJournal, caplog: pytest.LogCaptureFixture
) -> None:
    await journal.submit(fact("taken"))
    future = journal.submit(fact("taken"))
    future.cancel()
    await journal.flush()
    assert [record.message for record in caplog.records] == [
        "work failed whose waiter was cancelled"
    ]
    assert caplog.records[0].exc_info is not None


async def test_failure_of_an_ignored_future_is_logged_once(
    journal: SqlJournal, caplog: pytest.LogCaptureFixture
) -> None:
    await journal.submit(fact("taken"))
    caplog.set_level(logging.ERROR)

    def forget() -> None:
        _ = journal.submit(fact("taken"))

    forget()
    await journal.flush()
    gc.collect()
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[0] is ConstraintViolated


async def test_closing_writes_what_was_handed_in(journal: SqlJournal, database: Database) -> None:
    futures = [journal.submit(fact(f"fact-{number}")) for number in range(200)]
    await journal.close()
    assert all(future.done() for future in futures)
    assert len(names_in(database)) == 200


async def test_closing_is_waited_for_by_all_who_close(journal: SqlJournal) -> None:
    future = journal.submit(fact("fact"))
    impatient = asyncio.create_task(journal.close())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(journal.close(), journal.close())
    assert future.done()


async def test_closed_journal_takes_nothing(journal: SqlJournal) -> None:
    await journal.close()
    with pytest.raises(StoreClosed):
        _ = journal.submit(fact("fact"))
    await journal.flush()


async def test_flush_waits_for_all_that_was_handed_in(journal: SqlJournal) -> None:
    await journal.flush()
    futures = [journal.submit(fact(f"fact-{number}")) for number in range(50)]
    await journal.flush()
    assert all(future.done() for future in futures)


async def test_room_waits_until_less_waits(database: Database) -> None:
    limits = JournalLimits(waiting=10)
    journal = SqlJournal(database=database, loop=asyncio.get_running_loop(), limits=limits)
    gate = Gate()
    waits = journal.submit(gate)
    await gate.entered()
    for number in range(9):
        await journal.room()
        _ = journal.submit(fact(f"fact-{number}"))
    tasks = [asyncio.create_task(journal.room()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    tasks[0].cancel()
    gate.open()
    await asyncio.gather(*tasks[1:])
    await waits
    assert journal.statistics().waiting < 10
    await journal.close()


async def test_bytes_that_wait_are_bounded_as_well(database: Database) -> None:
    limits = JournalLimits(waiting_bytes=10_000)
    journal = SqlJournal(database=database, loop=asyncio.get_running_loop(), limits=limits)
    gate = Gate()
    waits = journal.submit(gate)
    await gate.entered()
    big = journal.submit(fact("big"), size=10_000)
    assert journal.statistics().waiting_bytes > 10_000
    room = asyncio.create_task(journal.room())
    await asyncio.sleep(0)
    assert not room.done()
    gate.open()
    await asyncio.gather(room, waits, big)
    assert journal.statistics().waiting_bytes == 0
    await journal.close()


async def test_far_too_much_is_refused(database: Database) -> None:
    limits = JournalLimits(waiting=5)
    journal = SqlJournal(database=database, loop=asyncio.get_running_loop(), limits=limits)
    gate = Gate()
    waits = journal.submit(gate)
    await gate.entered()
    futures = [journal.submit(fact(f"fact-{number}")) for number in range(19)]
    with pytest.raises(StoreOverloaded, match="20 pieces of work"):
        _ = journal.submit(fact("one too many"))
    gate.open()
    await asyncio.gather(*futures)
    await journal.room()
    await waits
    assert await journal.submit(fact("next")) == "next"
    await journal.close()


async def test_prepared_future_is_done_before_the_commit(
    journal: SqlJournal, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    commit = Connection.commit

    def late_commit(connection: Connection) -> None:
        gate(connection)
        commit(connection)

    monkeypatch.setattr(Connection, "commit", late_commit)
    prepared: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    committed = journal.submit(fact("fact"), prepared=prepared)
    assert await prepared == "fact"
    assert not committed.done()
    assert names_in(database) == []
    gate.open()
    assert await committed == "fact"
    assert names_in(database) == ["fact"]


@pytest.mark.parametrize("neighbour", [False, True])
async def test_failed_work_fails_both_its_futures(journal: SqlJournal, neighbour: bool) -> None:
    await journal.submit(fact("taken"))
    gate = Gate()
    waits = journal.submit(gate)
    await gate.entered()
    prepared: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    committed = journal.submit(fact("taken"), prepared=prepared)
    beside = journal.submit(fact("beside")) if neighbour else None
    gate.open()
    await waits
    for future in (prepared, committed):
        with pytest.raises(ConstraintViolated):
            await future
    if beside is not None:
        assert await beside == "beside"


async def test_database_that_stays_locked_is_unavailable_and_then_is_not(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database.dialect, "connect_arguments", lambda: {"timeout": 0.01})
    journal = SqlJournal(database=database, loop=asyncio.get_running_loop())
    blocker = sqlite3.connect(str(database.engine.url.database), isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    futures = [journal.submit(fact(name)) for name in ("a", "b")]
    assert await settled(*futures) == [StoreUnavailable] * 2
    assert journal.statistics().retried_alone == 0
    blocker.execute("ROLLBACK")
    blocker.close()
    assert await journal.submit(fact("c")) == "c"
    assert names_in(database) == ["c"]
    await journal.close()
