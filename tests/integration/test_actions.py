"""Actions on a real host: asked for by results and calls, decided by people, done by a webhook."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from runmesh.admin.v1 import actions_pb2, admin_pb2, explain_pb2
from runmesh.v1 import host_api_pb2, manifest_pb2

from host_service.testing import RealHost
from runner_sdk import Manifest, Result, RunContext, agent_runner
from stores.audit import AuditOutcome, AuditQuery
from tests.integration.host.refusals import refused
from tests.integration.host.waiting import eventually
from tests.unit.actions.server import HookServer, hook_server

NAME = "ticket.create"
AWAITING = host_api_pb2.ACTION_STATUS_AWAITING_APPROVAL
EXECUTED = host_api_pb2.ACTION_STATUS_EXECUTED
ACME = Manifest.minimal(
    "acme/asker",
    permissions=manifest_pb2.RunnerPermissions(platform_actions=[NAME, "ticket.close"]),
    capabilities=manifest_pb2.RunnerCapabilities(streaming=True, platform_api=True),
)


@agent_runner
async def asker(ctx: RunContext) -> AsyncIterator[Result]:
    """Asks for what the event says, by a call or by a result."""
    order = json.loads(ctx.text)
    name, key = order.get("name", NAME), order.get("key", "key")
    if key == "one a run":
        key = ctx.run_id
    if order.get("by") == "result":
        yield ctx.request_action(name, {"room": 2**63 + 1}, "hé", idempotency_key=key)
        yield ctx.delta("asked")
        return
    told = await ctx.host.actions.request(
        name, {"room": 2**63 + 1}, order.get("payload", "hé"), idempotency_key=key
    )
    yield ctx.delta(json.dumps([told.status, told.missing, told.result, told.detail]))


def may(approval: admin_pb2.ApprovalPolicy.ValueType, **fields: Any) -> admin_pb2.Agent:
    policy = admin_pb2.ResourcePolicy(platform_actions=[NAME], approval=approval, **fields)
    return admin_pb2.Agent(resources=policy)


FREE = may(admin_pb2.APPROVAL_POLICY_NEVER)
ASKED = may(admin_pb2.APPROVAL_POLICY_ALWAYS)


@asynccontextmanager
async def a_host(
    monkeypatch: pytest.MonkeyPatch, agent: admin_pb2.Agent = FREE, **options: Any
) -> AsyncIterator[tuple[RealHost, HookServer]]:
    monkeypatch.setenv("DESK_SECRET", "a secret")
    async with hook_server() as hook:
        hook.replies(200, '{"id": 9223372036854775809}')
        configuration = (
            f"webhooks: [{{action: {NAME}, url: '{hook.url}', secret: {{env: DESK_SECRET}}}}]"
        )
        host = RealHost(asker, manifest=ACME, agent=agent, configuration=configuration, **options)
        async with host as running:
            yield running, hook


def order(**parts: Any) -> str:
    return json.dumps(parts)


async def actions(host: RealHost, **query: Any) -> list[actions_pb2.Action]:
    request = actions_pb2.ListActionsRequest(**query)
    return list((await host.admin.ListActions(request, metadata=host.metadata)).actions)


async def decide(host: RealHost, action_id: str, *, reject: str = "") -> actions_pb2.Action:
    decision = actions_pb2.ACTION_DECISION_REJECT if reject else actions_pb2.ACTION_DECISION_APPROVE
    request = actions_pb2.DecideActionRequest(action_id=action_id, decision=decision, reason=reject)
    return (await host.admin.DecideAction(request, metadata=host.metadata)).action


async def is_executed(host: RealHost) -> bool:
    return [action.status for action in await actions(host)] == [EXECUTED]


async def test_call_executes_once_whoever_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_host(monkeypatch) as (host, hook):
        for conversation in ("one", "two"):
            outcome = await host.dispatch(order(), conversation_id=conversation)
            assert json.loads(outcome.text) == ["executed", [], {"id": 2**63 + 1}, ""]
        (request,) = hook.received
        body = json.loads(request.body)
        assert (body["target"], body["payload"]) == ({"room": 2**63 + 1}, "hé")
        conflict = await host.dispatch(order(payload="other"))
        assert (conflict.status, conflict.failure) == ("FAILED", "runner.error")
        (action,) = await actions(host)
        assert (action.status, action.result_json) == (EXECUTED, '{"id": 9223372036854775809}')
        assert body["action_id"] == action.action_id
        entries = await host.stores.events.entries(body["run_id"])
        assert [entry.kind for entry in entries] == [
            "action_requested", "action_executing", "action_executed",
        ]  # fmt: skip


async def test_result_executes_beside_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_host(monkeypatch) as (host, hook):
        go = asyncio.Event()

        async def slow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await go.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        hook.answer = slow
        outcome = await host.dispatch(order(by="result"))
        assert outcome.status == "COMPLETED"
        assert outcome.warnings == []
        assert len(outcome.of_kind("action_requested")) == 1
        await hook.arrived.wait()
        (action,) = await actions(host, status=host_api_pb2.ACTION_STATUS_EXECUTING)
        assert action.run_id == outcome.run.run_id
        go.set()
        await eventually(lambda: is_executed(host))
        entries = await host.stores.events.entries(outcome.run.run_id)
        assert [entry.kind for entry in entries] == [
            "action_requested", "action_executing", "action_executed",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "agent", "missing"),
    [
        (NAME, may(admin_pb2.APPROVAL_POLICY_NEVER), []),
        (NAME, admin_pb2.Agent(), ["policy", "approval"]),
        ("ticket.close", ASKED, ["policy", "executor", "approval"]),
        ("ticket.close", FREE, ["policy", "executor"]),
        (
            NAME,
            may(
                admin_pb2.APPROVAL_POLICY_BY_RULE,
                approval_rules=[
                    actions_pb2.ApprovalRule(
                        action="ticket.*",
                        conditions=[
                            actions_pb2.ApprovalCondition(
                                field="target.room", equals="9223372036854775809"
                            )
                        ],
                        ask=False,
                    )
                ],
            ),
            [],
        ),
        (NAME, may(admin_pb2.APPROVAL_POLICY_BY_RULE), ["approval"]),
    ],
)
async def test_what_is_missing_is_told_to_who_asks(
    monkeypatch: pytest.MonkeyPatch, name: str, agent: admin_pb2.Agent, missing: list[str]
) -> None:
    async with a_host(monkeypatch, agent) as (host, hook):
        told = json.loads((await host.dispatch(order(name=name))).text)
        expected = "awaiting_approval" if missing == ["approval"] else "recorded"
        assert told[:2] == [expected if missing else "executed", missing]
        assert len(hook.received) == (not missing)
        by_result = await host.dispatch(order(by="result", name=name, key="other"))
        lacks_more = bool(missing) and missing != ["approval"]
        assert by_result.warnings == ["action_not_executed"] * lacks_more


async def test_action_that_no_manifest_declares_is_refused_as_a_call_and_recorded_as_a_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_host(monkeypatch) as (host, hook):
        refusal = await host.dispatch(order(name="member.ban"))
        assert refusal.status == "FAILED"
        outcome = await host.dispatch(order(by="result", name="member.ban"))
        assert outcome.warnings == ["action_not_executed"]
        (action,) = await actions(host)
        assert list(action.missing) == ["manifest", "executor"]
        assert hook.received == []


async def test_person_approves_after_the_run_and_the_audit_knows_who(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_host(monkeypatch, ASKED) as (host, hook):
        outcome = await host.dispatch(order(by="result"))
        assert outcome.warnings == []
        (waiting,) = await actions(host, status=AWAITING)
        assert hook.received == []
        done = await decide(host, waiting.action_id)
        assert (done.status, done.result_json) == (EXECUTED, '{"id": 9223372036854775809}')
        assert json.loads(hook.received[0].body)["approved_by"] == done.decided_by
        assert await decide(host, waiting.action_id) == done
        assert len(hook.received) == 1
        refusal = await refused(decide(host, waiting.action_id, reject="no"))
        assert (refusal.code, refusal.reason) == ("ABORTED", "CONFLICT")
        assert (await refused(decide(host, "unknown"))).reason == "NOT_FOUND"
        rows = (await host.stores.audit.page(AuditQuery())).items
        told = {(row.rpc, row.outcome, row.caller, row.resource) for row in rows}
        key = done.decided_by
        assert ("ExecuteAction", AuditOutcome.DONE, key, NAME) in told
        approval = f"approve {waiting.action_id}"
        assert ("DecideAction", AuditOutcome.DONE, key, approval) in told
        assert ("DecideAction", AuditOutcome.REFUSED, key, waiting.action_id) in told
        entries = await host.stores.events.entries(outcome.run.run_id)
        assert [entry.kind for entry in entries] == [
            "action_requested",
            "action_awaiting_approval",
            "action_executing",
            "action_executed",
        ]


async def test_person_rejects_and_it_is_never_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_host(monkeypatch, ASKED) as (host, hook):
        await host.dispatch(order())
        (waiting,) = await actions(host)
        rejected = await decide(host, waiting.action_id, reject="not today")
        assert (rejected.detail, rejected.status) == (
            "not today", host_api_pb2.ACTION_STATUS_REJECTED,
        )  # fmt: skip
        again = await host.dispatch(order())
        assert json.loads(again.text)[0] == "rejected"
        assert hook.received == []


async def test_only_operators_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_host(monkeypatch, ASKED) as (host, _):
        await host.dispatch(order())
        (waiting,) = await actions(host)
        request = admin_pb2.CreateApiKeyRequest(name="eyes", role=admin_pb2.ROLE_VIEWER)
        made = await host.admin.CreateApiKey(request, metadata=host.metadata)
        host.metadata = (("authorization", f"Bearer {made.secret}"),)
        assert len(await actions(host)) == 1
        assert (await refused(decide(host, waiting.action_id))).reason == "UNAUTHORIZED"


async def test_pages_of_actions_end_at_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_host(monkeypatch, ASKED, limits={"page_bytes": 20_000}) as (host, _):
        for number in range(6):
            await host.dispatch(order(key=f"key-{number}", payload="x" * 9_000))
        found: list[str] = []
        sizes: list[int] = []
        token = ""
        while True:
            request = actions_pb2.ListActionsRequest(page_token=token)
            page = await host.admin.ListActions(request, metadata=host.metadata)
            sizes.append(len(page.actions))
            found += [action.idempotency_key for action in page.actions]
            token = page.next_page_token
            if not token:
                break
        assert found == [f"key-{number}" for number in reversed(range(6))]
        assert max(sizes) == 2


async def test_replay_without_side_effects_executes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_host(monkeypatch) as (host, hook):
        for by in ("call", "result"):
            outcome = await host.dispatch(order(by=by, key="one a run"))
            await hook.arrived.wait()
            hook.arrived.clear()
            request = explain_pb2.ReplayRunRequest(run_id=outcome.run.run_id)
            async for _ in host.admin.ReplayRun(request, metadata=host.metadata):
                pass
        await asyncio.sleep(0.2)
        assert len(hook.received) == 2
        assert len(await actions(host)) == 2


async def test_webhook_that_fails_is_told_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_host(monkeypatch) as (host, hook):
        hook.replies(500, "a secret reason")
        for _ in range(2):
            told = json.loads((await host.dispatch(order())).text)
            assert told == ["failed", [], None, "the webhook answered with status 500"]
        assert len(hook.received) == 1


async def test_bad_decisions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_host(monkeypatch) as (host, _):
        request = actions_pb2.DecideActionRequest(action_id="x")
        call: grpc.aio.UnaryUnaryCall[Any, Any] = host.admin.DecideAction(
            request, metadata=host.metadata
        )
        assert (await refused(call)).fields.keys() == {"decision"}
