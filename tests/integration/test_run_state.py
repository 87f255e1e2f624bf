"""State and storage on a real host: what runs start with, what they write, and who reads it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import manifest_pb2, result_pb2

from host_service.agents.agent import Scope
from host_service.testing import Outcome, RealHost
from runner_sdk import Manifest, Result, RunContext, agent_runner
from tests.postgresql import PostgresqlServer, running_postgresql

ALL = list(admin_pb2.StatePolicyScope.values())[1:]
AGENT = admin_pb2.Agent(state=admin_pb2.StatePolicy(scopes=ALL))
ACME = Manifest.minimal("acme/keeper")
STATEFUL = Manifest.minimal(
    "acme/keeper",
    capabilities=manifest_pb2.RunnerCapabilities(streaming=True, stateful_session=True),
)


def started_with(ctx: RunContext) -> dict[str, Any]:
    """What a run started with, by scope."""
    state = ctx.proto.state
    found: dict[str, Any] = {
        scope.value: dict(getattr(state, f"{scope.value}_json")) for scope in Scope
    }
    return {name: values for name, values in found.items() if values}


@agent_runner
async def keeper(ctx: RunContext) -> AsyncIterator[Result]:
    """Does what the event says, and says what it found."""
    order = json.loads(ctx.text or "{}")
    if "gate" in order:
        gates[order["gate"]].began.set()
        await gates[order["gate"]].go.wait()
    for scope, key, text in order.get("updates", ()):
        yield result_pb2.RunResult(
            state_updated=result_pb2.StateUpdated(
                scope=result_pb2.StateScope.Value(f"STATE_SCOPE_{scope.upper()}"),
                key=key,
                value_json=text,
            )
        )
    for key, value in order.get("set", {}).items():
        await ctx.host.state.set("conversation", key, value)
    yield ctx.delta(json.dumps(started_with(ctx)))


class Gate:
    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.go = asyncio.Event()


gates: dict[str, Gate] = {}


def told(outcome: Outcome) -> Any:
    assert outcome.status == "COMPLETED", outcome.run
    return json.loads(outcome.text)


def order(**parts: Any) -> str:
    return json.dumps(parts)


async def test_what_a_run_wrote_is_there_for_the_next_in_every_scope() -> None:
    updates = [[scope.value, "k", f'"{scope.value}"'] for scope in Scope]
    subject: dict[str, Any] = {"subject": {"type": "ticket", "id": "7"}}
    async with RealHost(keeper, manifest=ACME, agent=AGENT) as host:
        first = await host.dispatch(order(updates=updates), **subject)
        assert told(first) == {}
        assert first.warnings == []
        assert len(first.of_kind("state_updated")) == len(Scope)
        second = await host.dispatch(order(), **subject)
        assert told(second) == {scope.value: {"k": f'"{scope.value}"'} for scope in Scope}
        # Each scope is that of what the event says, and of nothing else.
        elsewhere = await host.dispatch(
            order(), conversation_id="other", actor={"type": "user", "id": "bob"}
        )
        assert set(told(elsewhere)) == {"runner", "binding", "workspace"}


async def test_results_keep_their_order_and_refused_ones_are_warnings() -> None:
    updates = [
        ["conversation", "k", "1"],
        ["subject", "k", "1"],
        ["conversation", "k", "{"],
        ["conversation", "k" * 256, "1"],
        ["conversation", "k", '{"id": 9223372036854775807}'],
    ]
    async with RealHost(keeper, manifest=ACME) as host:
        first = await host.dispatch(order(updates=updates))
        assert first.warnings == ["state_refused"] * 3
        assert len(first.of_kind("state_updated")) == 5
        assert told(await host.dispatch(order())) == {
            "conversation": {"k": '{"id": 9223372036854775807}'}
        }


async def test_run_that_goes_on_does_not_see_what_is_written_meanwhile() -> None:
    gates["meanwhile"] = Gate()
    async with RealHost(keeper, manifest=ACME) as host:
        waiting = asyncio.create_task(host.dispatch(order(gate="meanwhile")))
        await gates["meanwhile"].began.wait()
        await host.dispatch(order(set={"k": "later"}))
        gates["meanwhile"].go.set()
        assert told(await waiting) == {}
        assert told(await host.dispatch(order())) == {"conversation": {"k": '"later"'}}


async def test_run_that_waited_for_its_session_sees_what_the_one_before_it_wrote() -> None:
    gates["session"] = Gate()
    async with RealHost(keeper, manifest=STATEFUL) as host:
        first = asyncio.create_task(
            host.dispatch(order(gate="session", updates=[["conversation", "by", '"result"']]))
        )
        await gates["session"].began.wait()
        second = asyncio.create_task(host.dispatch(order()))
        await asyncio.sleep(0.1)
        gates["session"].go.set()
        assert told(await first) == {}
        assert told(await second) == {"conversation": {"by": '"result"'}}


async def test_agent_without_state_starts_with_none_and_writes_none() -> None:
    agent = admin_pb2.Agent(state=admin_pb2.StatePolicy(enabled=False))
    async with RealHost(keeper, manifest=ACME, agent=agent) as host:
        outcome = await host.dispatch(order(updates=[["conversation", "k", "1"]]))
        assert outcome.warnings == ["state_refused"]
        assert told(outcome) == {}


async def test_more_state_than_fits_is_cut_and_says_so() -> None:
    async with RealHost(truncated, manifest=ACME, limits={"state_snapshot_bytes": 100}) as host:
        await host.dispatch("fill")
        assert (await host.dispatch("look")).text == "7 True"


@agent_runner
async def truncated(ctx: RunContext) -> AsyncIterator[Result]:
    if ctx.text == "fill":
        for number in range(10):
            await ctx.host.state.set("conversation", f"k{number}", "x" * 10)
    yield ctx.delta(f"{len(ctx.proto.state.conversation_json)} {ctx.proto.state.truncated}")


@agent_runner
async def storing(ctx: RunContext) -> AsyncIterator[Result]:
    found = {}
    for area in ("plugin", "workspace", "binding"):
        found[area] = (await ctx.host.storage.find(area, "k") or b"").decode()
        await ctx.host.storage.set(area, "k", f"{ctx.text}".encode())
    yield ctx.delta(json.dumps(found))


async def test_storage_is_shared_as_its_areas_say() -> None:
    areas = [
        manifest_pb2.STORAGE_AREA_PLUGIN,
        manifest_pb2.STORAGE_AREA_WORKSPACE,
        manifest_pb2.STORAGE_AREA_BINDING,
    ]
    agent = admin_pb2.Agent(
        resources=admin_pb2.ResourcePolicy(storage=admin_pb2.StorageSelection(areas=areas))
    )
    async with RealHost(storing, manifest=ACME, agent=agent) as host:
        assert told(await host.dispatch("one", workspace_id="a")) == {
            "plugin": "", "workspace": "", "binding": "",
        }  # fmt: skip
        assert told(await host.dispatch("two", workspace_id="b", conversation_id="other")) == {
            "plugin": "one", "workspace": "", "binding": "one",
        }  # fmt: skip
        assert told(await host.dispatch("three", workspace_id="a")) == {
            "plugin": "two", "workspace": "one", "binding": "two",
        }  # fmt: skip


@pytest.fixture(scope="module")
def postgresql() -> Any:
    with running_postgresql() as server:
        yield server


async def test_two_hosts_on_one_database_share_state(postgresql: PostgresqlServer) -> None:
    async with (
        RealHost(keeper, manifest=ACME, database_url=postgresql.url) as one,
        RealHost(keeper, manifest=ACME, database_url=postgresql.url) as other,
    ):
        await one.dispatch(order(updates=[["conversation", "k", '"from one"']]))
        assert told(await other.dispatch(order())) == {"conversation": {"k": '"from one"'}}
