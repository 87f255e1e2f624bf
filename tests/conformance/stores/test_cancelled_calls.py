"""Calls whose callers lose interest leave nothing behind: no connection, no open transaction."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import psycopg

from stores import Stores
from stores.records import RunFacts, RunStatus
from tests.conformance.stores.samples import a_result, a_run, accepted, an_event, an_item, at

CALLS = 200
LONGEST_SECONDS = 0.02
# One that writes and three that read.
CONNECTIONS = 4

OTHERS = """
SELECT count(*), count(*) FILTER (WHERE state LIKE 'idle in transaction%')
FROM pg_stat_activity
WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()
"""


def _calls(stores: Stores) -> list[Callable[[int], Awaitable[object]]]:
    async def accept(number: int) -> object:
        event = an_event(f"event-{number}", conversation_key="many")
        item = an_item(f"item-{number}", conversation_key="many")
        return await stores.ledger.accept(event, a_run(f"run-{number}", event), item).committed

    async def record(number: int) -> object:
        results = (a_result("run-of-all", number + 1),)
        await stores.ledger.record(RunFacts(run_id="run-of-all", results=results))
        return None

    return [
        accept,
        record,
        lambda _: stores.hosts.renew("host", "start", at(1)),
        lambda _: stores.transcript.page("many"),
        lambda _: stores.ledger.get("run-of-all"),
        lambda _: stores.ping(),
    ]


async def test_cancelled_calls_leak_no_connection_and_leave_no_transaction_open(
    stores: Stores, database_url: str
) -> None:
    chance = random.Random(20)
    await accepted(stores, "run-of-all")
    await stores.hosts.register("host", "start", at(0))
    calls = _calls(stores)

    async def call_and_leave(number: int) -> bool:
        task = asyncio.ensure_future(chance.choice(calls)(number))
        await asyncio.sleep(chance.uniform(0, LONGEST_SECONDS))
        was_cancelled = task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return was_cancelled

    cancelled: list[bool] = []
    for first in range(0, CALLS, 20):
        cancelled += await asyncio.gather(
            *(call_and_leave(number) for number in range(first, first + 20))
        )
    assert sum(cancelled) > CALLS // 10

    started = time.monotonic()
    await stores.ping()
    assert time.monotonic() - started < 1
    assert stores.journal.statistics().waiting == 0
    if database_url.startswith("postgresql"):
        open_now, in_transaction = _others(database_url)
        assert in_transaction == 0
        assert open_now <= CONNECTIONS
    # What was handed in is done, whoever still waits for it: all of it, and nothing of it in part.
    page = await stores.transcript.page("many", newest_first=False, limit=CALLS)
    assert [item.position for item in page.items] == list(range(1, len(page.items) + 1))
    for item in page.items:
        run = await stores.ledger.get(item.transcript_id.replace("item", "run"))
        assert run is not None
        assert run.status is RunStatus.ACCEPTED


def _others(url: str) -> tuple[int, int]:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        row = connection.execute(OTHERS).fetchone()
    assert row is not None
    return row[0], row[1]
