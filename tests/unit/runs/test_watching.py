"""Tests of `host_service.runs.watching`: joined at any moment, nothing is missing or doubled."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from runmesh.v1 import result_pb2

from host_service.errors import NotFound
from host_service.limits import Limits
from host_service.runs.log import Batch, Bookmark, Ended
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.outcome import Outcome
from host_service.runs.services import RunServices
from host_service.runs.watching import RunWatcher
from stores import Stores
from stores.records import RunStatus
from tests.unit.runs.active import Conversation, begun, read_to_end, results_of
from tests.unit.runs.samples import a_delta, an_agent
from tests.unit.runs.test_delivery import CALL, message

WELL = Outcome(RunStatus.COMPLETED, completed=result_pb2.RunCompleted(finish_reason="stop"))


@pytest.fixture
def watcher(orchestrator: Orchestrator, stores: Stores, limits: Limits) -> RunWatcher:
    return RunWatcher(orchestrator=orchestrator, ledger=stores.ledger, limits=limits)


@pytest.fixture
async def run(stores: Stores, services: RunServices, orchestrator: Orchestrator) -> Conversation:
    return await begun(stores, services, orchestrator)


async def _everything_so_far(
    items: AsyncIterator[Batch | Bookmark | Ended], through: int
) -> list[result_pb2.RunResult]:
    results: list[result_pb2.RunResult] = []
    while not results or results[-1].sequence < through:
        results += results_of(await anext(items))
    return results


def said(results: list[result_pb2.RunResult]) -> str:
    """Return text and, in brackets, everything else, in order."""
    return "".join(
        each.message_delta.text if each.HasField("message_delta") else f"[{each.sequence}]"
        for each in results
    )


async def test_watcher_gets_what_was_and_then_what_comes(
    run: Conversation, watcher: RunWatcher
) -> None:
    await run.sends(a_delta("a"), CALL, a_delta("b"))
    watching = watcher.watch("run-1")
    assert said(await _everything_so_far(watching, 3)) == "a[2]b"
    await run.sends(a_delta("c"), message("abc"))
    await run.ends(WELL)
    rest = await read_to_end(watching)
    assert said(rest) == "c[5][6]"
    assert [each.sequence for each in rest] == [4, 5, 6]


@pytest.mark.parametrize("after", range(7))
async def test_watcher_gets_exactly_what_stands_above_its_number(
    run: Conversation, watcher: RunWatcher, after: int
) -> None:
    for payload in (a_delta("a"), a_delta("b"), CALL, a_delta("c"), CALL, a_delta("d")):
        await run.sends(payload)
    watching = watcher.watch("run-1", after)
    await run.ends(WELL) if after == 6 else None
    expected = "ab[3]c[5]d"
    places = [0, 1, 2, 5, 6, 9, 10]
    if after < 6:
        assert said(await _everything_so_far(watching, 6)) == expected[places[after] :]
        await run.ends(WELL)
    # The message that the host completes, and the end.
    assert said(await read_to_end(watching)) == "[7][8]"


async def test_run_that_has_ended_is_replayed_from_any_number(
    run: Conversation, watcher: RunWatcher
) -> None:
    await run.sends(a_delta("a"), CALL, a_delta("b"), message("ab"))
    await run.ends(WELL)
    for after, expected in ((0, "[2][4][5]"), (2, "[4][5]"), (4, "[5]"), (5, ""), (99, "")):
        assert said(await read_to_end(watcher.watch("run-1", after))) == expected


async def test_unknown_run_is_not_found(watcher: RunWatcher) -> None:
    with pytest.raises(NotFound):
        await anext(watcher.watch("run-9"))


async def test_withheld_deltas_stay_withheld_from_watchers(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, watcher: RunWatcher
) -> None:
    run = await begun(stores, services, orchestrator, agent=an_agent(streaming=False))
    await run.sends(a_delta("a"), CALL)
    watching = watcher.watch("run-1")
    assert said(await _everything_so_far(watching, 2)) == "[2]"
    await run.sends(a_delta("b"))
    await run.ends(WELL)
    assert said(await read_to_end(watching)) == "[4][5]"


async def test_durable_results_that_are_not_yet_stored_are_watched_all_the_same(
    run: Conversation, watcher: RunWatcher
) -> None:
    # Everything here is on its way to the journal, nothing of it there for sure.
    for _ in range(20):
        await run.sends(CALL)
    watching = watcher.watch("run-1", 5)
    assert [each.sequence for each in await _everything_so_far(watching, 20)] == [*range(6, 21)]
    await run.ends(WELL)
    assert [each.sequence for each in await read_to_end(watching)] == [21]


@pytest.mark.parametrize("is_committed", [True, False])
async def test_watcher_that_comes_while_the_end_is_committed_gets_it_once(
    run: Conversation,
    watcher: RunWatcher,
    stores: Stores,
    *,
    is_committed: bool,
) -> None:
    await run.sends(a_delta("Hello"))
    words = run.delivery.last_words(WELL)
    if is_committed:
        assert await stores.ledger.finish(words.end, words.facts)
    watching = watcher.watch("run-1")
    joining = asyncio.ensure_future(anext(watching))
    # It has looked at the run and at the ledger, and waits for more.
    await stores.ledger.get("run-1")
    for _ in range(20):
        await asyncio.sleep(0)
    if not is_committed:
        assert await stores.ledger.finish(words.end, words.facts)
    run.run._standing.end(words.end, is_taken_up=False)
    run.delivery.show_last(words)
    run.run.log.end(run.run._standing.record)
    results = results_of(await joining) + await read_to_end(watching)
    assert [each.WhichOneof("payload") for each in results] == [
        "message_completed",
        "run_completed",
    ]
    assert run.run._standing.record.last_sequence == 3


async def test_bookmark_of_an_idle_watcher_stands_at_what_it_has_seen(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, limits: Limits
) -> None:
    quick = replace(limits, bookmark_seconds=0.001)
    run = await begun(stores, replace(services, limits=quick), orchestrator)
    await run.sends(a_delta("a"), a_delta("b"))
    watching = RunWatcher(orchestrator=orchestrator, ledger=stores.ledger, limits=limits).watch(
        "run-1"
    )
    assert said(await _everything_so_far(watching, 2)) == "ab"
    assert await anext(watching) == Bookmark(2)


async def test_watcher_ahead_of_the_run_is_given_nothing_below_its_number(
    run: Conversation, watcher: RunWatcher
) -> None:
    await run.sends(a_delta("a"))
    watching = watcher.watch("run-1", 3)
    joining = asyncio.ensure_future(anext(watching))
    for _ in range(20):
        await asyncio.sleep(0)
    assert run.run.log.has_readers
    await run.sends(a_delta("b"))
    await run.sends(a_delta("c"), a_delta("d"))
    assert results_of(await joining)[-1].sequence == 4


async def test_watcher_that_leaves_is_no_reader_any_more(
    run: Conversation, watcher: RunWatcher
) -> None:
    await run.sends(a_delta("a"))
    watching = watcher.watch("run-1")
    await anext(watching)
    assert run.run.log.has_readers
    await watching.aclose()  # type: ignore[attr-defined]  # it is a generator
    assert not run.run.log.has_readers


async def test_small_replay_goes_out_together(run: Conversation, watcher: RunWatcher) -> None:
    for _ in range(10):
        await run.sends(CALL)
    await run.ends(WELL)
    batches = [each async for each in watcher.watch("run-1") if isinstance(each, Batch)]
    assert [len(results_of(each)) for each in batches] == [11]


async def test_large_replay_goes_out_in_frames(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, limits: Limits
) -> None:
    small = replace(limits, frame_bytes=5000)
    run = await begun(stores, services, orchestrator)
    for _ in range(10):
        await run.sends(message("x" * 1000, id=""))
    await run.ends(WELL)
    watcher = RunWatcher(orchestrator=orchestrator, ledger=stores.ledger, limits=small)
    batches = [each async for each in watcher.watch("run-1") if isinstance(each, Batch)]
    assert len(batches) > 2
    assert all(len(each.encoded) <= 5000 for each in batches)
    assert [each.sequence for batch in batches for each in results_of(batch)] == [*range(1, 12)]
