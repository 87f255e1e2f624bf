"""Tests of `host_service.runs.replay_stores`: a replay's world, over real stores."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from host_service.limits import Limits
from host_service.runs.event import known
from host_service.runs.replay_stores import replay_stores
from stores import Stores
from stores.actions import ActionRecord, ActionStatus
from stores.errors import ActionConflict
from stores.records import ArtifactHeader, LogEntry, RunEnd, RunRecord, RunStatus
from tests.unit.runs.active import a_run_record
from tests.unit.runs.samples import NOON, an_envelope


async def said(stores: Stores, number: int, *, conversation: str = "room") -> RunRecord:
    """Let somebody say something, at a minute of its own."""
    event = known(
        an_envelope(event_id=f"event-{number}", conversation_id=conversation),
        received_at=NOON + timedelta(minutes=number),
    )
    run_id = f"run-{number}"
    record = a_run_record(event, run_id=run_id, created_at=event.received_at)
    accepted = await stores.ledger.accept(
        event.record(run_id), record, event.transcript_item(run_id)
    )
    ended_at = event.received_at
    await stores.ledger.finish(
        RunEnd(run_id=run_id, status=RunStatus.COMPLETED, ended_at=ended_at, last_sequence=1)
    )
    return accepted.run


@pytest.fixture
async def original(stores: Stores) -> RunRecord:
    """The third of five messages; two more in another conversation, before it and after it."""
    for number in (1, 2):
        await said(stores, number)
    await said(stores, 20, conversation="aside")
    third = await said(stores, 3)
    third = replace(third, created_at=NOON + timedelta(minutes=3))
    await said(stores, 4)
    await said(stores, 5)
    return third


def world(stores: Stores, original: RunRecord, *, side_effects: bool = False) -> Stores:
    return replay_stores(
        stores,
        original,
        side_effects=side_effects,
        limits=Limits(),
        clock=lambda: datetime.now(UTC),
    )


@pytest.mark.parametrize("side_effects", [False, True])
@pytest.mark.parametrize("newest_first", [False, True])
async def test_history_ends_where_it_ended_for_the_original(
    stores: Stores, original: RunRecord, newest_first: bool, side_effects: bool
) -> None:
    transcript = world(stores, original, side_effects=side_effects).transcript
    key = original.conversation_key
    expected = [2, 1] if newest_first else [1, 2]
    for bound in (None, 2, 5):
        query: dict[str, Any] = {"at_or_before": bound, "newest_first": newest_first}
        page = await transcript.page(key, **query)
        assert [item.position for item in page.items] == expected
        contents = await transcript.contents(key, **query)
        assert [item.position for item in contents.items] == expected
    found = await transcript.search(key, "hello", before=100)
    assert [item.position for item in found.items] == [2, 1]
    assert await transcript.latest_position(key) == 2


async def test_other_conversations_end_where_they_ended_at_that_time(
    stores: Stores, original: RunRecord
) -> None:
    transcript = world(stores, original).transcript
    aside = (await stores.events.get_for_run("run-20")) or pytest.fail("there is none")
    assert (await transcript.page(aside.conversation_key)).items == ()
    later = replace(original, created_at=NOON + timedelta(hours=1))
    page = await world(stores, later).transcript.page(aside.conversation_key)
    assert len(page.items) == 1
    everywhere = await transcript.search_workspace("acme", "hello")
    assert {item.run_id for item in everywhere.items} == {"run-1", "run-2"}


async def test_events_end_with_the_original_ones(stores: Stores, original: RunRecord) -> None:
    events = world(stores, original).events
    key = original.conversation_key
    for newest_first, expected in ((True, ["3", "2", "1"]), (False, ["1", "2", "3"])):
        found: list[str] = []
        cursor: int | None = None
        while True:
            bound: dict[str, Any] = {"before": cursor} if newest_first else {"after": cursor}
            page = await events.page(key, limit=1, newest_first=newest_first, **bound)
            found += [event.event_id.removeprefix("event-") for event in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == expected
    assert await events.get("acme", "desk", "platform", "event-3") is not None
    assert await events.get("acme", "desk", "platform", "event-4") is None
    assert await events.get_for_run("run-4") is None


async def _bytes() -> AsyncIterator[bytes]:
    yield b"content"


async def test_artifacts_expire_and_belong_to_no_conversation(
    stores: Stores, original: RunRecord
) -> None:
    artifacts = world(stores, original).artifacts
    header = ArtifactHeader(
        artifact_id="made",
        workspace="acme",
        bot="desk",
        conversation_key=original.conversation_key,
        type="file",
        created_at=datetime.now(UTC),
        run_id="run-9",
    )
    await artifacts.write(header, _bytes())
    made = await artifacts.get("made")
    assert made is not None
    assert (made.conversation_key, made.run_id) == ("", "run-9")
    assert made.expires_at is not None
    assert made.expires_at <= datetime.now(UTC) + timedelta(hours=1)
    assert await artifacts.read("made", offset=0, length=100) == b"content"
    own = await artifacts.list_of_conversation(original.conversation_key)
    assert own.items == ()
    key = original.conversation_key
    kept = await artifacts.adopt(["made"], workspace="acme", bot="desk", conversation_key=key)
    assert kept == ["made"]
    soon = replace(header, artifact_id="soon", expires_at=datetime.now(UTC) + timedelta(minutes=1))
    assert (await artifacts.write(soon, _bytes())).expires_at == soon.expires_at


def an_action(**changes: Any) -> ActionRecord:
    action = ActionRecord(
        action_id="action-1",
        scope_key="scope",
        idempotency_key="key",
        digest=b"digest",
        run_id="run-3",
        workspace="acme",
        agent_id="helper",
        runner_id="plugin:acme/desk/default",
        name="message.send",
        requested_at=NOON,
        host_id="host",
        host_incarnation="start-1",
        status=ActionStatus.EXECUTING,
        started_at=NOON,
    )
    return replace(action, **changes)


def entry(action: ActionRecord) -> LogEntry:
    return LogEntry(run_id=action.run_id, kind="action_recorded", at=NOON, payload=b"{}")


async def test_actions_are_recorded_as_what_would_have_been(
    stores: Stores, original: RunRecord
) -> None:
    actions = world(stores, original).actions
    put = await actions.put(an_action(), entry=entry)
    assert put.is_new
    assert put.action.status is ActionStatus.RECORDED
    assert put.action.missing == ("side_effects",)
    assert put.action.started_at is None
    assert await actions.get("action-1") == put.action
    assert await stores.actions.get("action-1") is None
    assert [each.kind for each in await stores.events.entries("run-3")] == ["action_recorded"]
    again = await actions.put(an_action(action_id="action-2"), entry=entry)
    assert (again.is_new, again.action) == (False, put.action)
    with pytest.raises(ActionConflict):
        await actions.put(an_action(digest=b"other"), entry=entry)
    lacking = await actions.put(
        an_action(idempotency_key="other", missing=("executor",)), entry=entry
    )
    assert lacking.action.missing == ("executor", "side_effects")
    assert len(await stores.events.entries("run-3")) == 2


async def test_with_side_effects_everything_but_the_past_is_the_hosts_own(
    stores: Stores, original: RunRecord
) -> None:
    loud = world(stores, original, side_effects=True)
    for name in ("state", "storage", "artifacts", "actions", "ledger"):
        assert getattr(loud, name) is getattr(stores, name)
    quiet = world(stores, original)
    for name in ("state", "storage", "artifacts", "actions"):
        assert getattr(quiet, name) is not getattr(stores, name)
