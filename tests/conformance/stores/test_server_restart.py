"""PostgreSQL goes away under load, and comes back."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from stores import Stores, open_stores
from stores.errors import StoreUnavailable
from stores.records import RunFacts, RunStatus
from tests.conformance.stores.samples import a_result, a_run, an_end, an_event, an_item
from tests.integration.host.waiting import eventually
from tests.postgresql import PostgresqlServer, running_postgresql

WRITERS = 16
RESULTS = 3
AWAY_SECONDS = 1.0
BACK_SECONDS = 5.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with running_postgresql() as server:
        yield server


class Load:
    """Writers that go on whatever happens, and note what they were told.

    Attributes:
        acknowledged: By run, how many of its results were told to be durable.
        finished: The runs whose end was told to be durable.
        doubtful: Failures whose outcome was told to be in doubt.
        refused: Failures that were told to have written nothing.
        answered_at: When something was last told to be durable.
    """

    def __init__(self, stores: Stores, prefix: str) -> None:
        self._stores = stores
        self._prefix = prefix
        self.acknowledged: dict[str, int] = {}
        self.finished: set[str] = set()
        self.doubtful = 0
        self.refused: set[str] = set()
        self.answered_at = 0.0
        self.slowest_refusal_seconds = 0.0

    async def __call__(self, writer: int) -> None:
        number = 0
        while True:
            number += 1
            name, started = f"{self._prefix}-{writer}-{number}", time.monotonic()
            try:
                await self._write_run(name)
                self.answered_at = time.monotonic()
            except StoreUnavailable as error:
                self.doubtful += error.in_doubt
                if not error.in_doubt and f"run-{name}" not in self.acknowledged:
                    self.refused.add(f"run-{name}")
                self.slowest_refusal_seconds = max(
                    self.slowest_refusal_seconds, time.monotonic() - started
                )
                await asyncio.sleep(0.02)

    async def _write_run(self, name: str) -> None:
        ledger, run_id = self._stores.ledger, f"run-{name}"
        event = an_event(f"event-{name}", conversation_key=f"talk-{name}")
        item = an_item(f"item-{name}-0", conversation_key=event.conversation_key)
        await ledger.accept(event, a_run(run_id, event), item).committed
        self.acknowledged[run_id] = 0
        for sequence in range(1, RESULTS + 1):
            again = an_item(f"item-{name}-{sequence}", conversation_key=event.conversation_key)
            results = (a_result(run_id, sequence),)
            await ledger.record(RunFacts(run_id=run_id, results=results, items=(again,)))
            self.acknowledged[run_id] = sequence
        await ledger.finish(an_end(run_id))
        self.finished.add(run_id)


async def check_told_is_there(stores: Stores, load: Load) -> None:
    for run_id, results in load.acknowledged.items():
        run = await stores.ledger.get(run_id)
        assert run is not None
        stored = await stores.ledger.results(run_id)
        assert len(stored) >= results
        items = await stores.transcript.page(run.conversation_key, newest_first=False)
        assert [item.position for item in items.items] == list(range(1, len(stored) + 2))
        assert run.status is RunStatus.COMPLETED or run_id not in load.finished
    for run_id in load.refused:
        assert await stores.ledger.get(run_id) is None


@pytest.mark.parametrize("way", ["stop", "crash"])
async def test_stores_go_on_by_themselves_when_the_server_is_back(
    server: PostgresqlServer, way: str
) -> None:
    stores = await open_stores(server.url)
    load = Load(stores, way)
    tasks = [asyncio.create_task(load(writer)) for writer in range(WRITERS)]
    await eventually(lambda: len(load.finished) > 2 * WRITERS)
    await asyncio.to_thread(server.stop if way == "stop" else server.crash)
    with pytest.raises(StoreUnavailable):
        await stores.ping()
    with pytest.raises(StoreUnavailable):
        await stores.ledger.get("run-1")
    await asyncio.sleep(AWAY_SECONDS)
    assert not any(task.done() for task in tasks)
    before = len(load.finished)
    await asyncio.to_thread(server.start)
    back_at = time.monotonic()
    await eventually(lambda: len(load.finished) > before + WRITERS)
    assert load.answered_at - back_at < BACK_SECONDS
    assert load.refused
    # Whoever waits while the server is away hears so at once: nothing piles up.
    assert load.slowest_refusal_seconds < BACK_SECONDS
    assert stores.journal.statistics().waiting <= WRITERS
    await stores.ping()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await stores.journal.flush()
    await check_told_is_there(stores, load)
    await stores.close()
