"""Facts of one statement that wait together are sent together, and still each has its own fate."""

import asyncio

from stores import Stores
from stores.errors import ConstraintViolated, RunNotWritable, StoreError
from stores.records import RunFacts
from tests.conformance.stores.samples import a_result, accepted, an_end, an_item


async def outcomes_of(stores: Stores, *results: tuple[str, int]) -> list[str | None]:
    """What becomes of results that are handed in at once: `None` is good."""
    # While the first transaction is under way, the others come to wait for the next.
    first = stores.ledger.record(RunFacts(run_id="run-0", items=(an_item("item"),)))
    waiting = [
        stores.ledger.record(RunFacts(run_id=run_id, results=(a_result(run_id, sequence),)))
        for run_id, sequence in results
    ]
    await first
    return [_name(error) for error in await asyncio.gather(*waiting, return_exceptions=True)]


def _name(error: object) -> str | None:
    if isinstance(error, RunNotWritable):
        return error.reason
    assert error is None or isinstance(error, StoreError)
    return None if error is None else type(error).__name__


async def test_run_that_takes_nothing_costs_its_neighbours_nothing(stores: Stores) -> None:
    for number in range(3):
        await accepted(stores, f"run-{number}")
    await stores.ledger.finish(an_end("run-2"))
    before = stores.journal.statistics()
    told = await outcomes_of(
        stores, ("run-1", 1), ("run-2", 1), ("run-1", 2), ("run-9", 1), ("run-1", 3)
    )
    assert told == [None, "ended", None, "unknown", None]
    assert [each.sequence for each in await stores.ledger.results("run-1")] == [1, 2, 3]
    assert await stores.ledger.results("run-2") == []
    after = stores.journal.statistics()
    assert after.retried_alone == before.retried_alone
    assert after.refused - before.refused == 2


async def test_row_that_is_refused_fails_alone(stores: Stores) -> None:
    for number in range(2):
        await accepted(stores, f"run-{number}")
    told = await outcomes_of(stores, ("run-1", 1), ("run-1", 2), ("run-1", 1), ("run-1", 3))
    assert told == [None, None, ConstraintViolated.__name__, None]
    assert [each.sequence for each in await stores.ledger.results("run-1")] == [1, 2, 3]
