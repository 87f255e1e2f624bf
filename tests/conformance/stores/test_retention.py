"""What is old goes, what is active or mentioned stays, and nothing is left that leads nowhere."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from stores import Stores, open_stores
from stores.errors import InvalidRecord
from stores.records import ArtifactHeader, CatalogueItem, CatalogueKind, RunFacts, RunStatus
from stores.retention import Purged, RetentionPolicy
from stores.sql.opening import open_database
from stores.sql.tables import metadata
from tests.conformance.stores.samples import (
    NOON,
    a_checkpoint,
    a_result,
    a_run,
    an_agent,
    an_end,
    an_entry,
    an_event,
    an_item,
    at,
)

DAY = 86_400.0
LATER = at(10 * DAY)


@pytest.fixture
async def stores(database_url: str, tmp_path: Path) -> AsyncIterator[Stores]:
    """Gives stores whose clock stands at noon of the first day."""
    opened = await open_stores(
        database_url, clock=lambda: NOON, blobs_url=(tmp_path / "blobs").as_uri()
    )
    yield opened
    await opened.close()


async def a_talk(stores: Stores, number: int, *, day: float, ended: bool = True) -> str:
    """Store a run of a day, with all that a run has, and return its id."""
    run_id = f"run-{number}"
    time = at(day * DAY)
    event = an_event(f"event-{number}", received_at=time)
    run = replace(a_run(run_id, event), created_at=time, agent_snapshot=f"agent {number}".encode())
    question = an_item(f"question-{number}", event_id=event.event_id, created_at=time)
    await stores.ledger.accept(event, run, question).committed
    await stores.ledger.advance(run_id, RunStatus.RUNNING, at=time)
    answer = an_item(
        f"answer-{number}", event_id=event.event_id, run_id=run_id, created_at=time,
        text=f"answer{number}",
    )  # fmt: skip
    facts = RunFacts(
        run_id=run_id,
        results=tuple(a_result(run_id, n) for n in range(1, 8)),
        entries=(an_entry(run_id), an_entry(run_id)),
        items=(answer,),
        checkpoints=() if ended else (a_checkpoint(run_id, sequence=9),),
    )
    await stores.ledger.record(facts)
    if ended:
        await stores.ledger.finish(an_end(run_id, ended_at=time + timedelta(seconds=1)))
    return run_id


async def an_artifact(
    stores: Stores, artifact_id: str, *, day: float, run_id: str | None = None, talk: str = "talk"
) -> None:
    header = ArtifactHeader(
        artifact_id=artifact_id, workspace="acme", bot="helper", conversation_key=talk,
        run_id=run_id, type="file", created_at=at(day * DAY),
    )  # fmt: skip
    await stores.artifacts.write(header, _bytes_of(artifact_id))


async def _bytes_of(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


def contents(url: str) -> dict[str, list[tuple[object, ...]]]:
    with open_database(url, synchronous="FULL").engine.connect() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(sa.select(table))]
            for table in metadata.sorted_tables
        }


def count(url: str, *names: str) -> list[int]:
    found = contents(url)
    return [len(found[name]) for name in names]


def found_transcripts(page: object) -> list[str]:
    return [item.transcript_id for item in page.items]  # type: ignore[attr-defined]


@pytest.mark.parametrize("batch", [1, 3, 200])
async def test_old_runs_go_with_all_that_is_theirs(
    batch: int, stores: Stores, database_url: str
) -> None:
    for number in range(3):
        await a_talk(stores, number, day=number)
    await a_talk(stores, 8, day=8)
    removed = await stores.retention.purge("acme", before=at(5 * DAY), batch=batch)
    assert removed == Purged(
        items=6, runs=3, results=21, log_entries=6, events=3, agent_snapshots=3
    )
    tables = ("runs", "events", "run_results", "log_entries", "transcript_items", "agent_snapshots")
    assert count(database_url, *tables) == [1, 1, 7, 2, 2, 1]
    assert found_transcripts(await stores.transcript.page("talk")) == ["answer-8", "question-8"]
    assert found_transcripts(await stores.transcript.search("talk", "answer1")) == []
    assert found_transcripts(await stores.transcript.search("talk", "answer8")) == ["answer-8"]
    assert await stores.retention.purge("acme", before=at(5 * DAY)) == Purged()


async def test_active_run_and_what_it_answers_stay(stores: Stores, database_url: str) -> None:
    await a_talk(stores, 1, day=0, ended=False)
    await an_artifact(stores, "input", day=0)
    await an_artifact(stores, "output", day=0, run_id="run-1")
    before = contents(database_url)
    assert await stores.retention.purge("acme", before=LATER, max_items=1) == Purged()
    assert contents(database_url) == before
    await stores.ledger.finish(an_end("run-1", ended_at=at(1)))
    removed = await stores.retention.purge("acme", before=LATER)
    assert (removed.runs, removed.items, removed.events, removed.artifacts) == (1, 2, 1, 2)


async def test_run_that_ended_lately_stays_though_it_began_long_ago(stores: Stores) -> None:
    await a_talk(stores, 1, day=0, ended=False)
    await stores.ledger.finish(an_end("run-1", ended_at=at(8 * DAY)))
    removed = await stores.retention.purge("acme", before=at(5 * DAY))
    assert (removed.runs, removed.events) == (0, 0)
    assert await stores.ledger.get("run-1") is not None
    assert await stores.events.get_for_run("run-1") is not None


async def test_items_of_a_removed_run_go_whatever_their_time_says(
    stores: Stores, database_url: str
) -> None:
    await a_talk(stores, 1, day=0, ended=False)
    late = an_item("late", run_id="run-1", created_at=at(20 * DAY))
    await stores.ledger.record(RunFacts(run_id="run-1", items=(late,)))
    await stores.ledger.finish(an_end("run-1", ended_at=at(1)))
    await stores.retention.purge("acme", before=LATER)
    assert count(database_url, "transcript_items", "runs") == [0, 0]


async def test_event_goes_with_its_run_whatever_its_time_says(
    stores: Stores, database_url: str
) -> None:
    event = an_event("event-1", received_at=at(20 * DAY))
    await stores.ledger.accept(event, a_run("run-1", event)).committed
    await stores.ledger.finish(an_end("run-1", ended_at=at(1)))
    assert await stores.retention.purge("acme", before=LATER) == Purged(
        runs=1, events=1, agent_snapshots=1
    )
    assert count(database_url, "runs", "events") == [0, 0]


async def test_event_of_the_same_id_from_elsewhere_keeps_nothing_of_an_old_run(
    stores: Stores, database_url: str
) -> None:
    await a_talk(stores, 1, day=0)
    other = an_event("event-1", source="elsewhere")
    await stores.ledger.accept(other, a_run("run-2", other)).committed
    removed = await stores.retention.purge("acme", before=LATER)
    assert removed.runs == 1
    run_ids = {row[7] for row in contents(database_url)["transcript_items"]}
    assert "run-1" not in run_ids


async def test_conversation_keeps_its_newest_items(stores: Stores) -> None:
    for number in range(5):
        await a_talk(stores, number, day=number)
    await stores.ledger.record(RunFacts(run_id=await a_talk(stores, 9, day=9, ended=False)))
    removed = await stores.retention.purge("acme", max_items=5, batch=2)
    assert removed == Purged(items=7)
    page = await stores.transcript.page("talk")
    assert [item.position for item in page.items] == [12, 11, 10, 9, 8]


async def test_other_workspaces_are_not_touched(stores: Stores, database_url: str) -> None:
    await a_talk(stores, 1, day=0)
    await stores.events.append(an_event("lone"))
    await stores.state.set("scope", "key", "1", workspace="acme")
    await an_artifact(stores, "file", day=0, talk="other")
    before = contents(database_url)
    assert await stores.retention.purge("other", before=LATER, max_items=1) == Purged()
    assert contents(database_url) == before
    assert await stores.retention.workspaces() == ["acme"]


async def test_events_without_a_run_and_old_state_go(stores: Stores) -> None:
    for number in range(5):
        await stores.events.append(an_event(f"event-{number}", received_at=at(number * DAY)))
    written = await stores.state.set("scope", "key", "1", workspace="acme")
    await stores.state.set("scope", "nobody's", "1")
    removed = await stores.retention.purge("acme", before=at(2.5 * DAY), batch=2)
    assert removed == Purged(events=3, state_values=1)
    assert await stores.state.get("scope", "key") is None
    assert await stores.state.get("scope", "nobody's") is not None
    again = await stores.state.set("scope", "key", "2", workspace="acme")
    assert again.version > written.version


async def test_artifacts_stay_while_something_mentions_them(stores: Stores) -> None:
    await a_talk(stores, 1, day=0)
    await a_talk(stores, 8, day=8, ended=False)
    kept = an_item("kept", content=b"\x0a\x09mentioned", created_at=at(8 * DAY))
    await stores.ledger.record(RunFacts(run_id="run-8", items=(kept,)))
    await stores.ledger.finish(an_end("run-8", ended_at=at(8 * DAY)))
    await an_artifact(stores, "of-old-run", day=0, run_id="run-1")
    await an_artifact(stores, "of-kept-run", day=0, run_id="run-8")
    await an_artifact(stores, "mentioned", day=0, run_id="run-1")
    await an_artifact(stores, "of-nobody", day=0)
    await an_artifact(stores, "young", day=7)
    expected = await stores.retention.purge("acme", before=at(5 * DAY), dry_run=True)
    removed = await stores.retention.purge("acme", before=at(5 * DAY))
    assert removed.artifacts == expected.artifacts == 2
    left = await stores.artifacts.list_of_workspace("acme")
    assert {found.artifact_id for found in left.items} == {"of-kept-run", "mentioned", "young"}
    await stores.retention.purge("acme", before=LATER)
    collected = await stores.artifacts.collect_orphans(grace_seconds=-1)
    assert collected.blobs == 5


async def test_files_of_agents_stay_as_long_as_agents_name_them(stores: Stores) -> None:
    await an_artifact(stores, "manual-1", day=0)
    await an_artifact(stores, "manual-2", day=0)
    naming = an_agent(document='{"config_json": "{\\"manual\\": \\"manual-1\\"}"}')
    await stores.catalogue.put_agent(naming)
    expected = await stores.retention.purge("acme", before=LATER, dry_run=True)
    assert (await stores.retention.purge("acme", before=LATER)).artifacts == expected.artifacts == 1
    left = await stores.artifacts.list_of_workspace("acme")
    assert [found.artifact_id for found in left.items] == ["manual-1"]
    await stores.catalogue.put_agent(an_agent())
    assert (await stores.retention.purge("acme", before=LATER)).artifacts == 1


async def test_trial_counts_and_changes_nothing(stores: Stores, database_url: str) -> None:
    for number in range(3):
        await a_talk(stores, number, day=number)
    await stores.events.append(an_event("lone"))
    await stores.state.set("scope", "key", "1", workspace="acme")
    await an_artifact(stores, "file", day=0, run_id="run-0")
    before = contents(database_url)
    expected = await stores.retention.purge("acme", before=at(1.5 * DAY), dry_run=True)
    assert contents(database_url) == before
    removed = await stores.retention.purge("acme", before=at(1.5 * DAY))
    assert expected == replace(removed, agent_snapshots=0)
    assert expected == Purged(
        items=4, runs=2, results=14, log_entries=4, events=3, artifacts=1, state_values=1
    )


async def test_event_that_comes_again_after_it_was_removed_starts_a_run(stores: Stores) -> None:
    await a_talk(stores, 1, day=0)
    again = await stores.ledger.accept(an_event("event-1"), a_run("run-1")).committed
    assert again.run.ended_at is not None
    await stores.retention.purge("acme", before=LATER)
    new = await stores.ledger.accept(
        an_event("event-1"), a_run("run-2", an_event("event-1"))
    ).committed
    assert (new.run.run_id, new.run.ended_at) == ("run-2", None)


async def test_positions_go_on_behind_what_was_removed(stores: Stores) -> None:
    await a_talk(stores, 1, day=0)
    await stores.retention.purge("acme", before=LATER)
    await a_talk(stores, 2, day=9)
    page = await stores.transcript.page("talk")
    assert [item.position for item in page.items] == [4, 3]


async def test_hosts_go_on_beside_a_purge_that_may_be_cut_off(
    stores: Stores, database_url: str
) -> None:
    for number in range(30):
        await a_talk(stores, number, day=0)
    other = await open_stores(database_url)
    purge = asyncio.create_task(other.retention.purge("acme", before=LATER, batch=1))
    for number in range(100, 110):
        await a_talk(stores, number, day=20)
    purge.cancel()
    await asyncio.wait([purge])
    await other.retention.purge("acme", before=LATER, batch=7)
    await other.close()
    found = contents(database_url)
    assert len(found["runs"]) == len(found["events"]) == 10
    assert len(found["transcript_items"]) == 20


async def test_policies_are_kept_beside_what_else_a_policy_says(stores: Stores) -> None:
    policy = RetentionPolicy(max_age_seconds=90 * 86_400, max_items_per_conversation=5)
    document = '{"other": [1.50]}'
    await stores.catalogue.put_item(
        CatalogueItem(kind=CatalogueKind.POLICY, id="acme", document=document)
    )
    assert await stores.retention.policies() == {}
    await stores.retention.set_policy("acme", policy)
    await stores.retention.set_policy("other", RetentionPolicy())
    assert await stores.retention.policies() == {"acme": policy, "other": RetentionPolicy()}
    item = await stores.catalogue.get_item(CatalogueKind.POLICY, "acme")
    assert item is not None
    assert '"other": [1.5]' in item.document


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ('{"retention": 1}', "field retention must be an object"),
        ('{"retention": {"age": 1}}', "field retention.age is not known"),
        ('{"retention": {"max_age_seconds": 3600}}', "from 86400 to"),
        ('{"retention": {"max_age_seconds": true}}', "must be a whole number"),
        ('{"retention": {"max_items_per_conversation": 0}}', "from 1 to"),
    ],
)
def test_policy_that_cannot_be_is_told(document: str, told: str) -> None:
    with pytest.raises(InvalidRecord, match=told):
        RetentionPolicy.parse(document)
