"""The promises of actions: known by their key, moved on by one, executed once at most."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from stores import Stores, open_stores
from stores.actions import ActionQuery, ActionRecord, ActionStatus
from stores.errors import ActionConflict, InvalidRecord, RunNotWritable
from stores.records import LogEntry, RunStatus
from stores.retention import Purged
from tests.conformance.stores.samples import NOON, accepted, an_end, at

EXECUTING, AWAITING = ActionStatus.EXECUTING, ActionStatus.AWAITING_APPROVAL
RECORDED, EXECUTED = ActionStatus.RECORDED, ActionStatus.EXECUTED
FAILED, REJECTED = ActionStatus.FAILED, ActionStatus.REJECTED


def an_action(action_id: str = "action-1", **changes: Any) -> ActionRecord:
    """Return an action of run-1 that waits for approval, with a key that follows from its id."""
    action = ActionRecord(
        action_id=action_id,
        scope_key="acme's desk",
        idempotency_key=action_id.replace("action", "key"),
        digest=b"digest of it",
        run_id="run-1",
        workspace="acme",
        agent_id="agent",
        runner_id="plugin:acme/helper/runner",
        name="message.send",
        requested_at=NOON,
        host_id="host",
        host_incarnation="start-1",
        target='{"room": 9223372036854775807}',
        payload='"hé 🦉"',
        hint=2,
        status=AWAITING,
    )
    return replace(action, **changes)


def entry_of(action: ActionRecord) -> LogEntry:
    payload = json.dumps([action.action_id, action.status.name, *action.missing]).encode()
    return LogEntry(run_id=action.run_id, kind="action", at=NOON, payload=payload)


async def entries(stores: Stores, run_id: str = "run-1") -> list[list[str]]:
    return [json.loads(entry.payload) for entry in await stores.events.entries(run_id)]


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[Stores]:
    opened = await open_stores(database_url, clock=lambda: NOON)
    await accepted(opened, "run-1")
    await accepted(opened, "run-2")
    yield opened
    await opened.close()


async def put(stores: Stores, action: ActionRecord) -> ActionRecord:
    stored = await stores.actions.put(action, entry=entry_of)
    assert stored.is_new
    return stored.action


async def begin(stores: Stores, action_id: str, **changes: Any) -> ActionRecord | None:
    fields: dict[str, Any] = {
        "at": at(1),
        "decided_by": "key-7",
        "detail": "go on",
        "host_id": "host-2",
        "host_incarnation": "start-2",
        "entry": entry_of,
    }
    return await stores.actions.begin(action_id, **(fields | changes))


async def test_action_comes_back_as_it_was_put_with_its_entry(stores: Stores) -> None:
    action = an_action(status=RECORDED, missing=("executor", "policy"))
    assert await put(stores, action) == action
    assert await stores.actions.get("action-1") == action
    assert await entries(stores) == [["action-1", "RECORDED", "executor", "policy"]]
    bare = an_action("action-2", target=None, payload=None, workspace="", hint=0)
    assert await put(stores, bare) == bare
    assert await stores.actions.get("action-2") == bare
    assert await stores.actions.get("action-3") is None


async def test_same_key_is_the_same_action_and_other_content_a_conflict(stores: Stores) -> None:
    first = await put(stores, an_action())
    again = an_action("action-9", idempotency_key="key-1", run_id="run-2", status=EXECUTING)
    stored = await stores.actions.put(again, entry=entry_of)
    assert (stored.is_new, stored.action) == (False, first)
    with pytest.raises(ActionConflict) as told:
        await stores.actions.put(replace(again, digest=b"another"), entry=entry_of)
    assert (told.value.action_id, told.value.run_id) == ("action-1", "run-1")
    elsewhere = replace(again, scope_key="acme's des", digest=b"another")
    assert (await stores.actions.put(elsewhere, entry=entry_of)).is_new
    assert await entries(stores) == [["action-1", "AWAITING_APPROVAL"]]
    assert await entries(stores, "run-2") == [["action-9", "EXECUTING"]]


async def test_what_was_only_recorded_is_asked_for_anew(stores: Stores) -> None:
    await put(stores, an_action(status=RECORDED, missing=("executor",)))
    same = an_action(
        "action-9", idempotency_key="key-1", run_id="run-2", status=RECORDED, missing=("policy",)
    )
    known = await stores.actions.put(same, entry=entry_of)
    assert (known.is_new, known.action.missing) == (False, ("executor",))
    anew = replace(same, status=EXECUTING, missing=(), requested_at=at(5), started_at=at(5))
    stored = await stores.actions.put(anew, entry=entry_of)
    assert stored.is_new
    assert stored.action == replace(anew, action_id="action-1", requested_at=NOON)
    assert await stores.actions.get("action-1") == stored.action
    assert await stores.actions.get("action-9") is None
    assert await entries(stores, "run-2") == [["action-1", "EXECUTING"]]


@pytest.mark.parametrize("reason", ["unknown", "ended", "other_host"])
async def test_action_of_a_run_that_takes_nothing_is_refused(stores: Stores, reason: str) -> None:
    action = an_action()
    if reason == "unknown":
        action = an_action(run_id="run-9")
    elif reason == "ended":
        await stores.ledger.finish(an_end())
    else:
        action = an_action(host_incarnation="start-9")
    with pytest.raises(RunNotWritable) as told:
        await stores.actions.put(action, entry=entry_of)
    assert told.value.reason == reason
    assert await stores.actions.get("action-1") is None


async def test_of_many_who_approve_at_once_one_executes(stores: Stores) -> None:
    await put(stores, an_action(missing=("approval",)))
    begun = await asyncio.gather(
        *(begin(stores, "action-1", decided_by=f"key-{number}") for number in range(20))
    )
    (one,) = [action for action in begun if action is not None]
    assert (one.status, one.decided_at, one.started_at) == (EXECUTING, at(1), at(1))
    assert (one.missing, one.detail) == ((), "go on")
    assert (one.host_id, one.host_incarnation) == ("host-2", "start-2")
    assert await stores.actions.get("action-1") == one
    assert await entries(stores) == [
        ["action-1", "AWAITING_APPROVAL", "approval"],
        ["action-1", "EXECUTING"],
    ]


async def test_of_two_hosts_that_approve_at_once_one_executes(
    stores: Stores, database_url: str
) -> None:
    other = await open_stores(database_url)
    try:
        for number in range(20):
            await put(stores, an_action(f"action-{number}"))
            begun = await asyncio.gather(
                begin(stores, f"action-{number}"), begin(other, f"action-{number}")
            )
            assert begun.count(None) == 1
    finally:
        await other.close()


@pytest.mark.parametrize("status", [EXECUTED, FAILED])
async def test_execution_ends_once_and_after_its_run(stores: Stores, status: ActionStatus) -> None:
    await put(stores, an_action())
    await stores.ledger.finish(an_end())
    assert await begin(stores, "action-1") is not None
    end: dict[str, Any] = {
        "at": at(2), "result": '{"id": 18446744073709551615}', "detail": "d é", "entry": entry_of,
    }  # fmt: skip
    settle = stores.actions.settle
    assert await settle("action-1", status, host_incarnation="start-9", **end) is None
    settled = await settle("action-1", status, host_incarnation="start-2", **end)
    assert settled is not None
    assert (settled.status, settled.result, settled.detail) == (status, end["result"], "d é")
    assert (settled.ended_at, settled.decided_by) == (at(2), "key-7")
    assert await stores.actions.get("action-1") == settled
    assert await settle("action-1", status, host_incarnation="start-2", **end) is None
    assert await begin(stores, "action-1") is None
    assert (await entries(stores))[-1] == ["action-1", status.name]
    with pytest.raises(InvalidRecord):
        _ = settle("action-1", REJECTED, host_incarnation="start-2", **end)


async def test_rejected_action_is_never_executed(stores: Stores) -> None:
    await put(stores, an_action(missing=("approval",)))
    reject = stores.actions.reject
    rejected = await reject(
        "action-1", at=at(3), decided_by="key-7", detail="not today", entry=entry_of
    )
    assert rejected is not None
    assert (rejected.status, rejected.detail, rejected.decided_by) == (
        REJECTED, "not today", "key-7",
    )  # fmt: skip
    assert (rejected.decided_at, rejected.ended_at, rejected.missing) == (at(3), at(3), ())
    assert await begin(stores, "action-1") is None
    assert await reject("action-1", at=at(4), decided_by="k", detail="", entry=entry_of) is None
    assert await reject("action-2", at=at(4), decided_by="k", detail="", entry=entry_of) is None
    again = an_action("action-9", idempotency_key="key-1", status=EXECUTING)
    stored = await stores.actions.put(again, entry=entry_of)
    assert (stored.is_new, stored.action) == (False, rejected)


async def test_execution_on_a_host_that_is_gone_has_failed(stores: Stores) -> None:
    await stores.hosts.register("living", "start-1", at(60))
    await stores.hosts.register("restarted", "start-2", at(60))
    await stores.hosts.register("late", "start-1", at(-1))
    for number, host in enumerate(("living", "restarted", "late", "unknown")):
        await put(stores, an_action(f"action-{number}", host_id=host, status=EXECUTING))
    await put(stores, an_action("action-4", host_id="unknown"))
    failed = await stores.actions.fail_lost(NOON, detail="lost", entry=entry_of)
    assert [action.action_id for action in failed] == ["action-1", "action-2", "action-3"]
    for action in failed:
        assert (action.status, action.detail, action.ended_at) == (FAILED, "lost", NOON)
        assert await stores.actions.get(action.action_id) == action
    assert await stores.actions.fail_lost(NOON, detail="lost", entry=entry_of) == []
    (living,) = (await stores.actions.list(ActionQuery(status=EXECUTING))).items
    assert living.host_id == "living"
    assert (await entries(stores))[-1] == ["action-3", "FAILED"]


async def test_lists_are_newest_first_and_narrowed(stores: Stores) -> None:
    for number in range(12):
        status = (AWAITING, EXECUTING, RECORDED)[number % 3]
        run_id = f"run-{1 + number % 2}"
        agent_id = "agent" if number < 6 else "other"
        action = an_action(f"action-{number:02}", status=status, run_id=run_id, agent_id=agent_id)
        await put(stores, action)

    async def ids(query: ActionQuery, limit: int = 5) -> list[str]:
        found: list[str] = []
        after = None
        while True:
            page = await stores.actions.list(query, limit=limit, after=after)
            found += [action.action_id for action in page.items]
            after = page.next_cursor
            if after is None:
                return found

    everything = [f"action-{number:02}" for number in reversed(range(12))]
    assert await ids(ActionQuery()) == everything
    assert await ids(ActionQuery(), limit=12) == everything
    assert await ids(ActionQuery(status=AWAITING)) == everything[2::3]
    assert await ids(ActionQuery(status=RECORDED)) == everything[0::3]
    assert await ids(ActionQuery(run_id="run-1")) == everything[1::2]
    assert await ids(ActionQuery(agent_id="other")) == everything[:6]
    assert await ids(ActionQuery(agent_id="agent", status=AWAITING, run_id="run-2")) == [
        "action-03"
    ]
    assert await ids(ActionQuery(run_id="a\0b")) == []


@pytest.mark.parametrize("bad", ["a\0b", "a\ud83d", "k" * 256])
async def test_text_that_cannot_be_stored_is_refused_at_once(stores: Stores, bad: str) -> None:
    for field in ("action_id", "idempotency_key", "name"):
        with pytest.raises(InvalidRecord):
            _ = stores.actions.put(an_action(**{field: bad}), entry=entry_of)
    if len(bad) < 5:
        with pytest.raises(InvalidRecord):
            _ = stores.actions.put(an_action(payload=bad), entry=entry_of)


async def test_purged_run_takes_its_actions_along_and_their_keys_are_forgotten(
    stores: Stores,
) -> None:
    for number in range(5):
        await put(stores, an_action(f"action-{number}"))
    kept = await put(stores, an_action("action-9", run_id="run-2"))
    await stores.ledger.finish(an_end(status=RunStatus.COMPLETED))
    before = at(0) + timedelta(days=2)
    would = await stores.retention.purge("acme", before=before, dry_run=True)
    assert (would.runs, would.actions, would.log_entries) == (1, 5, 5)
    purged = await stores.retention.purge("acme", before=before, batch=2)
    assert (purged.runs, purged.actions) == (1, 5)
    assert (await stores.actions.list(ActionQuery())).items == (kept,)
    again = an_action("action-7", idempotency_key="key-1", run_id="run-2", digest=b"another")
    assert (await stores.actions.put(again, entry=entry_of)).is_new
    assert await stores.retention.purge("acme", before=before) == Purged()
