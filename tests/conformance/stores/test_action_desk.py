"""The desk of actions on either engine: judged, executed once, and never again after a crash."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from host_service.actions.desk import ActionDesk
from host_service.actions.executors import ActionExecutors, ExecutionFailed, ExecutorAnswer
from host_service.actions.request import ActionRequest
from host_service.agents.approval import ApprovalRule
from host_service.authorization.snapshot import Snapshot
from host_service.errors import AlreadyExists, Conflict, NotFound, Unavailable
from stores import Stores, open_stores
from stores.actions import ActionQuery, ActionRecord, ActionStatus
from stores.audit import AuditOutcome, AuditQuery
from tests.conformance.stores.samples import NOON, accepted, an_end
from tests.unit.capabilities.test_gate import rights

EXECUTED, AWAITING = ActionStatus.EXECUTED, ActionStatus.AWAITING_APPROVAL
NAME = "ticket.create"


class Executor:
    """Notes what it is asked to do, and does as it is told."""

    def __init__(self) -> None:
        self.asked: list[ActionRecord] = []
        self.began = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None

    async def execute(self, action: ActionRecord) -> ExecutorAnswer:
        self.asked.append(action)
        self.began.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return ExecutorAnswer(f'{{"n": {len(self.asked)}}}', "well done")


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[Stores]:
    opened = await open_stores(database_url, clock=lambda: NOON)
    await opened.hosts.register("host", "start-1", NOON + timedelta(seconds=60))
    for run_id in ("run-1", "run-2"):
        await accepted(opened, run_id)
    yield opened
    await opened.close()


@pytest.fixture
def executor() -> Executor:
    return Executor()


MakeDesk = Callable[..., ActionDesk]


@pytest.fixture
def make_desk(stores: Stores, executor: Executor) -> MakeDesk:
    def make(**changes: Any) -> ActionDesk:
        fields: dict[str, Any] = {
            "store": stores.actions,
            "executors": ActionExecutors({NAME: executor}),
            "audit": stores.audit,
            "clock": lambda: NOON,
            "host_id": "host",
            "host_incarnation": "start-1",
        }
        return ActionDesk(**(fields | changes))

    return make


@pytest.fixture
def desk(make_desk: MakeDesk) -> ActionDesk:
    return make_desk()


def may(**changes: Any) -> Snapshot:
    """Return rights to do it without anybody's yes."""
    granted = frozenset({NAME})
    fields: dict[str, Any] = {
        "actions": granted, "declared_actions": granted, "approval": "never",
    }  # fmt: skip
    return rights(**(fields | changes))


def a_request(**changes: Any) -> ActionRequest:
    fields: dict[str, Any] = {
        "name": NAME,
        "idempotency_key": "key",
        "target_json": '{"room": 9223372036854775809}',
        "payload_json": '"hé"',
        "hint": 2,
    }
    return ActionRequest(**(fields | changes))


async def steps(stores: Stores, run_id: str = "run-1") -> list[str]:
    return [entry.kind for entry in await stores.events.entries(run_id)]


async def test_action_with_all_it_needs_is_executed_once_and_told(
    desk: ActionDesk, executor: Executor, stores: Stores
) -> None:
    done = await desk.request(may(), a_request())
    assert (done.status, done.result, done.detail) == (EXECUTED, '{"n": 1}', "well done")
    assert (done.started_at, done.ended_at, done.decided_by) == (NOON, NOON, None)
    (asked,) = executor.asked
    assert (asked.status, asked.target, asked.payload) == (
        ActionStatus.EXECUTING, '{"room": 9223372036854775809}', '"hé"',
    )  # fmt: skip
    assert await desk.request(may(run_id="run-2"), a_request(hint=0)) == done
    assert len(executor.asked) == 1
    assert await steps(stores) == ["action_executing", "action_executed"]
    last = (await stores.events.entries("run-1"))[-1]
    assert json.loads(last.payload) == {
        "action_id": done.action_id,
        "action": NAME,
        "idempotency_key": "key",
        "detail": "well done",
        "result": {"n": 1},
    }
    (row,) = (await stores.audit.page(AuditQuery())).items
    assert (row.rpc, row.outcome, row.resource) == ("ExecuteAction", AuditOutcome.DONE, NAME)
    assert (row.run_id, row.scope, row.caller) == ("run-1", done.action_id, None)


@pytest.mark.parametrize(
    ("snapshot", "name", "status", "missing"),
    [
        (may(), NAME, EXECUTED, ()),
        (may(approval="always"), NAME, AWAITING, ("approval",)),
        (may(approval="by_rule"), NAME, AWAITING, ("approval",)),
        (
            may(approval="by_rule", approval_rules=(ApprovalRule(NAME, ask=False),)),
            NAME,
            EXECUTED,
            (),
        ),
        (may(actions=frozenset()), NAME, ActionStatus.RECORDED, ("policy",)),
        (
            may(actions=frozenset(), declared_actions=frozenset()),
            NAME,
            ActionStatus.RECORDED,
            ("manifest",),
        ),
        (
            may(actions=frozenset({"x"}), declared_actions=frozenset({"x"}), approval="always"),
            "x",
            ActionStatus.RECORDED,
            ("executor", "approval"),
        ),
        (
            may(actions=frozenset(), approval="always"),
            "x",
            ActionStatus.RECORDED,
            ("manifest", "executor", "approval"),
        ),
    ],
)
async def test_action_that_lacks_something_is_recorded_and_says_what(
    desk: ActionDesk,
    executor: Executor,
    stores: Stores,
    snapshot: Snapshot,
    name: str,
    status: ActionStatus,
    missing: tuple[str, ...],
) -> None:
    done = await desk.request(snapshot, a_request(name=name))
    assert (done.status, done.missing) == (status, missing)
    assert len(executor.asked) == (status is EXECUTED)
    assert (await steps(stores))[-1] == f"action_{status.name.lower()}"
    stored = await stores.actions.get(done.action_id)
    assert stored == done


async def test_same_content_counts_by_value_and_other_content_is_refused(
    desk: ActionDesk, executor: Executor
) -> None:
    done = await desk.request(may(), a_request(target_json='{"a": 1, "b": [1.10]}'))
    again = a_request(target_json=' {"b":[1.10],"a":1}', payload_json='"h\\u00e9"')
    assert await desk.request(may(), again) == done
    for changes in (
        {"target_json": '{"a": 1, "b": [1.1]}'},
        {"target_json": None},
        {"payload_json": None},
        {"payload_json": "null"},
        {"name": "ticket.close"},
    ):
        with pytest.raises(AlreadyExists) as told:
            await desk.request(may(), a_request(**({"target_json": again.target_json} | changes)))
        assert told.value.facts == {"resource": "key"}
    assert len(executor.asked) == 1


async def test_key_is_good_for_one_runner_agent_workspace_and_bot(
    desk: ActionDesk, executor: Executor
) -> None:
    def within(**changes: str) -> Snapshot:
        identity = may().identity
        fields = {name: getattr(identity, name) for name in identity.__dataclass_fields__}
        own = {name: changes.pop(name) for name in list(changes) if name in fields}
        return may(identity=type(identity)(**(fields | own)), **changes)

    same = [
        within(),
        within(run_id="run-2"),
        within(conversation_id="other", conversation_key="acme/other"),
        within(actor_id="bob"),
    ]
    others = [
        within(workspace="other"),
        within(bot="other"),
        within(agent_id="other"),
        within(runner_id="plugin:acme/desk/other"),
        within(workspace="", bot="acme"),
    ]
    for snapshot in (*same, *others):
        assert (await desk.request(snapshot, a_request())).status is EXECUTED
    assert len(executor.asked) == 1 + len(others)


async def test_many_who_ask_at_once_share_one_execution(
    desk: ActionDesk, executor: Executor
) -> None:
    executor.go.clear()
    asking = [asyncio.create_task(desk.request(may(), a_request())) for _ in range(20)]
    await executor.began.wait()
    await asyncio.sleep(0.05)
    executor.go.set()
    done = await asyncio.gather(*asking)
    assert {(action.status, action.result) for action in done} == {(EXECUTED, '{"n": 1}')}
    assert len(executor.asked) == 1


async def test_no_more_are_executed_at_once_than_may_be(
    make_desk: MakeDesk, executor: Executor
) -> None:
    desk = make_desk(most_executing=2)
    executor.go.clear()
    asking = [desk.take(may(), a_request(idempotency_key=f"key-{n}")) for n in range(5)]
    await executor.began.wait()
    await asyncio.sleep(0.1)
    assert len(executor.asked) == 2
    executor.go.set()
    done = await asyncio.gather(*asking)
    assert {action.status for action in done} == {EXECUTED}
    assert len(executor.asked) == 5


async def test_two_hosts_that_are_asked_at_once_execute_once(
    desk: ActionDesk, make_desk: MakeDesk, executor: Executor, stores: Stores, database_url: str
) -> None:
    other_stores = await open_stores(database_url)
    other = make_desk(store=other_stores.actions)
    try:
        for number in range(20):
            request = a_request(idempotency_key=f"key-{number}")
            await asyncio.gather(desk.request(may(), request), other.request(may(), request))
        assert len(executor.asked) == 20
    finally:
        await other.close()
        await other_stores.close()


async def test_failed_execution_says_why_and_is_not_tried_again(
    desk: ActionDesk, executor: Executor, stores: Stores
) -> None:
    executor.error = ExecutionFailed("the desk is closed")
    failed = await desk.request(may(), a_request())
    assert (failed.status, failed.detail) == (ActionStatus.FAILED, "the desk is closed")
    executor.error = None
    assert await desk.request(may(), a_request()) == failed
    executor.error = RuntimeError("a secret path")
    broken = await desk.request(may(), a_request(idempotency_key="other"))
    assert broken.status is ActionStatus.FAILED
    assert "secret" not in broken.detail
    assert len(executor.asked) == 2
    rows = (await stores.audit.page(AuditQuery(outcome=AuditOutcome.FAILED))).items
    assert [row.rpc for row in rows] == ["ExecuteAction"] * 2


async def test_what_was_only_recorded_is_executed_when_it_is_asked_for_with_all_it_needs(
    desk: ActionDesk, make_desk: MakeDesk, executor: Executor, stores: Stores
) -> None:
    bare = make_desk(executors=ActionExecutors())
    recorded = await bare.request(may(), a_request())
    assert recorded.missing == ("executor",)
    done = await desk.request(may(run_id="run-2"), a_request())
    assert (done.status, done.action_id) == (EXECUTED, recorded.action_id)
    assert await steps(stores) == ["action_recorded"]
    assert await steps(stores, "run-2") == ["action_executing", "action_executed"]


async def test_approved_action_is_executed_after_its_run_and_once(
    desk: ActionDesk, executor: Executor, stores: Stores
) -> None:
    awaiting = await desk.request(may(approval="always"), a_request())
    await stores.ledger.finish(an_end())
    executor.go.clear()
    approving = [
        asyncio.create_task(desk.approve(awaiting.action_id, caller=f"key-{number}"))
        for number in range(3)
    ]
    await executor.began.wait()
    executor.go.set()
    done = await asyncio.gather(*approving)
    assert {action.status for action in done} == {EXECUTED}
    assert await desk.approve(awaiting.action_id, caller="key-9") == done[0]
    assert len(executor.asked) == 1
    assert await steps(stores) == [
        "action_awaiting_approval", "action_executing", "action_executed",
    ]  # fmt: skip
    (row,) = (await stores.audit.page(AuditQuery(run_id="run-1"))).items
    assert (row.rpc, row.caller) == ("ExecuteAction", done[0].decided_by)
    with pytest.raises(Conflict, match="it is executed"):
        await desk.reject(awaiting.action_id, caller="key-7", reason="")


async def test_rejected_action_is_not_executed_whoever_asks_again(
    desk: ActionDesk, executor: Executor, stores: Stores
) -> None:
    awaiting = await desk.request(may(approval="always"), a_request())
    rejected = await desk.reject(awaiting.action_id, caller="key-7", reason="not today")
    assert (rejected.status, rejected.detail, rejected.decided_by) == (
        ActionStatus.REJECTED, "not today", "key-7",
    )  # fmt: skip
    assert await desk.reject(awaiting.action_id, caller="key-8", reason="") == rejected
    with pytest.raises(Conflict, match="it is rejected"):
        await desk.approve(awaiting.action_id, caller="key-7")
    assert await desk.request(may(), a_request()) == rejected
    assert executor.asked == []
    assert (await steps(stores))[-1] == "action_rejected"


async def test_what_cannot_be_decided_here_stays_undecided(
    desk: ActionDesk, make_desk: MakeDesk, stores: Stores
) -> None:
    awaiting = await desk.request(may(approval="always"), a_request())
    with pytest.raises(Unavailable, match="nothing was decided"):
        await make_desk(executors=ActionExecutors()).approve(awaiting.action_id, caller="k")
    for call in (
        desk.approve("unknown", caller="k"),
        desk.reject("unknown", caller="k", reason=""),
    ):
        with pytest.raises(NotFound):
            await call
    recorded = await desk.request(may(), a_request(name="x", idempotency_key="other"))
    with pytest.raises(Unavailable):
        await desk.approve(recorded.action_id, caller="k")
    assert await stores.actions.get(awaiting.action_id) == awaiting


async def test_caller_who_leaves_takes_no_execution_along(
    desk: ActionDesk, executor: Executor, stores: Stores
) -> None:
    executor.go.clear()
    asking = asyncio.create_task(desk.request(may(), a_request()))
    await executor.began.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await stores.ledger.finish(an_end())
    executor.go.set()
    await desk.close()
    (done,) = (await stores.actions.list(ActionQuery())).items
    assert done.status is EXECUTED
    assert (await steps(stores))[-1] == "action_executed"


async def test_caller_who_leaves_before_it_is_stored_takes_nothing_along_either(
    desk: ActionDesk, executor: Executor, stores: Stores
) -> None:
    asking = asyncio.create_task(desk.request(may(), a_request()))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(10):
        await executor.began.wait()
    await desk.close()
    assert (await steps(stores))[-1] == "action_executed"


async def test_execution_that_a_crash_cut_off_has_failed_and_is_not_tried_again(
    desk: ActionDesk, make_desk: MakeDesk, executor: Executor, stores: Stores
) -> None:
    executor.go.clear()
    cut_off = desk.take(may(), a_request())
    await executor.began.wait()
    await desk.recover()
    assert await steps(stores) == ["action_executing"]
    # The host is killed, and starts again.
    await stores.hosts.register("host", "start-2", NOON + timedelta(seconds=60))
    again = make_desk(host_incarnation="start-2")
    await again.recover()
    assert await steps(stores) == ["action_executing", "action_failed"]
    (failed,) = (await stores.actions.list(ActionQuery())).items
    assert failed.status is ActionStatus.FAILED
    assert "whether it took effect is not known" in failed.detail
    # Were the first one only slow, what it has to say now would come too late.
    executor.go.set()
    assert await cut_off == failed
    assert await stores.actions.get(failed.action_id) == failed
    later = await again.request(may(), a_request())
    assert later == failed
    assert len(executor.asked) == 1


async def test_stop_waits_for_what_executes_and_says_so_of_what_does_not_end(
    desk: ActionDesk, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host_service.actions.desk._GRACE_SECONDS", 0.05)
    executor.go.clear()
    task = desk.take(may(), a_request())
    await executor.began.wait()
    await desk.close()
    stopped = await task
    assert stopped.status is ActionStatus.FAILED
    assert "the host was stopped while it was executed" in stopped.detail
