"""Runs that replay others, and what is kept of runs for whoever wants them explained."""

from dataclasses import replace
from datetime import timedelta

import pytest

from stores import Stores
from stores.errors import ConstraintViolated, InvalidRecord
from stores.records import RunFacts, RunNotes, RunQuery
from tests.conformance.stores.samples import NOON, a_result, a_run, an_end, an_event, an_item, at

_ODD = '{"why": ["\\u0000", "世界", 9007199254740993]}'


async def _original(stores: Stores) -> None:
    await stores.ledger.accept(an_event(), a_run(), an_item())
    await stores.ledger.finish(an_end(ended_at=at(1)))


async def test_notes_come_back_as_they_were_written(stores: Stores) -> None:
    await stores.ledger.accept(an_event(), a_run(), an_item(), resolution=_ODD)
    assert await stores.ledger.notes("run-1") == RunNotes(_ODD, None)
    await stores.ledger.record(RunFacts(run_id="run-1", course="first"))
    assert await stores.ledger.notes("run-1") == RunNotes(_ODD, "first")
    await stores.ledger.record(RunFacts(run_id="run-1", results=(a_result("run-1", 1),)))
    await stores.ledger.finish(an_end(), RunFacts(run_id="run-1"))
    assert await stores.ledger.notes("run-1") == RunNotes(_ODD, "first")


async def test_last_facts_may_bring_the_course(stores: Stores) -> None:
    await stores.ledger.accept(an_event(), a_run())
    assert await stores.ledger.notes("run-1") == RunNotes()
    await stores.ledger.finish(an_end(), RunFacts(run_id="run-1", course=_ODD))
    assert await stores.ledger.notes("run-1") == RunNotes(None, _ODD)
    assert await stores.ledger.notes("run-2") is None


async def test_course_may_be_amended_behind_the_end_by_the_host_of_the_run_alone(
    stores: Stores,
) -> None:
    await stores.ledger.accept(an_event(), a_run())
    await stores.ledger.finish(an_end(), RunFacts(run_id="run-1", course="first"))
    assert not await stores.ledger.amend_course("run-1", "x", host_incarnation="another")
    assert not await stores.ledger.amend_course("run-2", "x")
    assert await stores.ledger.amend_course("run-1", "last", host_incarnation="start-1")
    assert await stores.ledger.notes("run-1") == RunNotes(None, "last")


@pytest.mark.parametrize("text", ["\0", "\ud800"])
async def test_notes_that_no_database_holds_are_refused(stores: Stores, text: str) -> None:
    with pytest.raises(InvalidRecord):
        _ = stores.ledger.accept(an_event(), a_run(), resolution=text)
    with pytest.raises(InvalidRecord):
        _ = stores.ledger.record(RunFacts(run_id="run-1", course=text))


async def test_replay_is_a_run_and_not_the_run_of_its_event(stores: Stores) -> None:
    await _original(stores)
    replay = a_run(
        "run-2", an_event(), replay_of="run-1", session_key="own", latest_cursor_position=7
    )
    assert await stores.ledger.replay(replay, resolution=_ODD) == replay
    assert await stores.ledger.get("run-2") == replay
    assert await stores.ledger.notes("run-2") == RunNotes(_ODD, None)
    again = await stores.ledger.accept(an_event(), a_run("run-3", an_event()))
    assert (again.run.run_id, again.duplicate) == ("run-1", True)
    for run_id in ("run-1", "run-2"):
        assert await stores.events.get_for_run(run_id) == an_event(run_id="run-1")
    assert len((await stores.transcript.page("talk")).items) == 1
    listed = (await stores.ledger.list(RunQuery())).items
    assert {run.run_id: run.replay_of for run in listed} == {"run-1": None, "run-2": "run-1"}
    assert (await stores.ledger.list(RunQuery(replay_of="run-1"))).items == (replay,)
    assert (await stores.ledger.list(RunQuery(replay_of="run-2"))).items == ()


async def test_run_may_be_replayed_more_than_once(stores: Stores) -> None:
    await _original(stores)
    for run_id in ("run-2", "run-3"):
        await stores.ledger.replay(a_run(run_id, an_event(), replay_of="run-1"))
        assert await stores.ledger.finish(an_end(run_id))
    with pytest.raises(ConstraintViolated):
        await stores.ledger.replay(a_run("run-3", an_event(), replay_of="run-1"))


async def test_replay_names_what_it_replays(stores: Stores) -> None:
    with pytest.raises(InvalidRecord):
        _ = stores.ledger.replay(a_run("run-2"))


async def test_purge_takes_an_event_with_its_run_and_not_with_a_replay(stores: Stores) -> None:
    await _original(stores)
    old = a_run("run-2", an_event(), replay_of="run-1", created_at=NOON - timedelta(days=2))
    await stores.ledger.replay(old)
    await stores.ledger.finish(an_end("run-2", ended_at=NOON - timedelta(days=1)))
    await stores.ledger.replay(replace(old, run_id="run-3", created_at=at(2)))
    await stores.ledger.finish(an_end("run-3", ended_at=at(3)))
    workspace = an_event().workspace

    await stores.retention.purge(workspace, before=NOON - timedelta(hours=1))
    assert await stores.ledger.get("run-2") is None
    assert await stores.events.get_for_run("run-1") is not None

    await stores.retention.purge(workspace, before=at(2))
    assert await stores.ledger.get("run-1") is None
    kept = await stores.ledger.get("run-3")
    assert kept is not None
    assert kept.replay_of == "run-1"
    assert await stores.events.get_for_run("run-3") is None
