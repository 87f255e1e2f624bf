"""Listing runs: what narrows them, their order, and pages of them."""

from collections.abc import Sequence

import pytest

from stores import Stores
from stores.errors import InvalidRecord
from stores.records import RunQuery, RunRecord, RunStatus
from tests.conformance.stores.samples import accepted, an_end, at

ACTIVE = (RunStatus.ACCEPTED, RunStatus.QUEUED, RunStatus.RUNNING)


def ids(runs: Sequence[RunRecord]) -> list[str]:
    return [run.run_id for run in runs]


@pytest.fixture
async def some_runs(stores: Stores) -> Stores:
    """Gives stores with five runs that differ in all that a query can ask for."""
    await accepted(stores, "run-1", created_at=at(1), agent_id="other")
    await accepted(stores, "run-2", created_at=at(2), workspace="umbrella")
    await accepted(stores, "run-3", created_at=at(3), bot="another")
    await accepted(stores, "run-4", created_at=at(4), conversation_key="aside")
    await accepted(stores, "run-5", created_at=at(5))
    await stores.ledger.advance("run-2", RunStatus.RUNNING, at=at(6))
    await stores.ledger.finish(an_end("run-3", status=RunStatus.COMPLETED))
    await stores.ledger.finish(an_end("run-4", status=RunStatus.FAILED))
    await stores.ledger.finish(an_end("run-5", status=RunStatus.TIMED_OUT))
    return stores


QUERIES = [
    (RunQuery(), [5, 4, 3, 2, 1]),
    (RunQuery(agent_id="other"), [1]),
    (RunQuery(agent_id="unknown"), []),
    (RunQuery(workspace="umbrella"), [2]),
    (RunQuery(workspace="acme", bot="another"), [3]),
    (RunQuery(conversation_key="aside"), [4]),
    (RunQuery(conversation_key="talk", agent_id="agent"), [5, 3, 2]),
    (RunQuery(created_after=at(3)), [5, 4, 3]),
    (RunQuery(created_before=at(3)), [2, 1]),
    (RunQuery(created_after=at(2), created_before=at(4)), [3, 2]),
    (RunQuery(statuses=ACTIVE), [2, 1]),
    (RunQuery(statuses=(RunStatus.RUNNING,)), [2]),
    (RunQuery(statuses=(RunStatus.COMPLETED,)), [3]),
    (RunQuery(statuses=(RunStatus.FAILED, RunStatus.TIMED_OUT)), [5, 4]),
    (RunQuery(statuses=(RunStatus.RUNNING, RunStatus.FAILED)), [4, 2]),
    (RunQuery(statuses=tuple(RunStatus)), [5, 4, 3, 2, 1]),
]


async def test_query_narrows_the_runs(some_runs: Stores) -> None:
    for query, expected in QUERIES:
        page = await some_runs.ledger.list(query)
        assert (query, ids(page.items)) == (query, [f"run-{number}" for number in expected])
        assert page.next_cursor is None


async def test_listed_runs_are_whole(some_runs: Stores) -> None:
    page = await some_runs.ledger.list(RunQuery())
    assert list(page.items) == [await some_runs.ledger.get(run.run_id) for run in page.items]


async def test_pages_go_through_the_runs_once(some_runs: Stores) -> None:
    for limit in (1, 2, 3, 5, 6):
        seen: list[str] = []
        cursor: str | None = None
        while not seen or cursor is not None:
            page = await some_runs.ledger.list(RunQuery(), limit=limit, after=cursor)
            assert 0 < len(page.items) <= limit
            seen += ids(page.items)
            cursor = page.next_cursor
        assert seen == ["run-5", "run-4", "run-3", "run-2", "run-1"]


async def test_runs_of_one_moment_are_ordered_by_id(stores: Stores) -> None:
    for number in (3, 1, 2):
        await accepted(stores, f"run-{number}")
    first = await stores.ledger.list(RunQuery(), limit=2)
    second = await stores.ledger.list(RunQuery(), limit=2, after=first.next_cursor)
    assert ids(first.items + second.items) == ["run-3", "run-2", "run-1"]


async def test_paging_is_stable_while_runs_arrive_and_change(some_runs: Stores) -> None:
    first = await some_runs.ledger.list(RunQuery(), limit=2)
    await accepted(some_runs, "run-9", created_at=at(9))
    await some_runs.ledger.advance("run-1", RunStatus.RUNNING, at=at(9))
    second = await some_runs.ledger.list(RunQuery(), limit=3, after=first.next_cursor)
    assert ids(first.items + second.items) == ["run-5", "run-4", "run-3", "run-2", "run-1"]


@pytest.mark.parametrize("cursor", ["", "nonsense", "12", "12:", ":run-1", f"{10**30}:run-1"])
async def test_what_is_no_cursor_is_refused(stores: Stores, cursor: str) -> None:
    with pytest.raises(InvalidRecord, match="next_cursor"):
        await stores.ledger.list(RunQuery(), after=cursor)


async def test_page_of_no_size_is_refused(stores: Stores) -> None:
    with pytest.raises(InvalidRecord, match="limit"):
        await stores.ledger.list(RunQuery(), limit=0)
