"""A host's part in developing a plugin, and the relay for a plugin that only listens."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest
from runmesh.admin.v1 import admin_pb2, attach_tokens_pb2
from runmesh.admin.v1.admin_pb2_grpc import AdminServiceStub
from runmesh.v1.discovery_pb2_grpc import DiscoveryServiceStub

from host_service.development import HostSide
from runner_sdk import Attach, Manifest, Result, RunContext, agent_runner
from runner_sdk.testing import RunnerServer
from tests.integration.host.attached import AttachedRunner, new_token
from tests.integration.host.calls import (
    END,
    Caller,
    agent,
    calling,
    collect,
    collect_until,
    delta,
    message,
    say,
    scripted,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import SCRIPTED
from tests.integration.host.waiting import eventually, wait_until

PLUGIN = "acme/relayed"
RELAYED = (sys.executable, "-m", "tests.integration.host.runners.relayed")


@dataclass
class Connected:
    """What `HostSide` needs of a connection."""

    channel: grpc.aio.Channel
    admin: AdminServiceStub
    discovery: DiscoveryServiceStub
    metadata: tuple[tuple[str, str], ...]


@pytest.fixture
async def connected(host: HostProcess, caller: Caller) -> AsyncIterator[Connected]:
    """An operator's connection to the shared host."""
    async with grpc.aio.insecure_channel(host.addresses["grpc"]) as channel:
        stubs = AdminServiceStub(channel), DiscoveryServiceStub(channel)
        yield Connected(channel, *stubs, metadata=caller.metadata)


@pytest.fixture(scope="module")
def relayed(host: HostProcess) -> Iterator[AttachedRunner]:
    """A scripted runner that only listens, attached for."""

    async def prepare() -> str:
        async with calling(host.addresses["grpc"], host.key) as caller:
            runners = [("relayed", "default"), ("relayed-polite", "polite")]
            agents = [agent(each, runner_id=f"plugin:{PLUGIN}/{name}") for each, name in runners]
            await caller.apply(*agents)
            return (await new_token(caller, PLUGIN))[1]

    runner = AttachedRunner(
        plugin_id=PLUGIN,
        host=host,
        token=asyncio.run(prepare()),
        command=[*RELAYED, sys.executable, str(SCRIPTED)],
    )
    wait_until(lambda: f"{PLUGIN} is serving" in host.log(), seconds=30)
    yield runner
    runner.close()


async def tokens_of(connected: Connected, plugin_id: str) -> list[bool]:
    """Whether each token of a plugin holds, the newest first."""
    listed = await connected.admin.ListAttachTokens(
        attach_tokens_pb2.ListAttachTokensRequest(page_size=100), metadata=connected.metadata
    )
    return [
        not each.HasField("revoked_at") for each in listed.tokens if each.plugin_id == plugin_id
    ]


async def test_token_is_used_again_while_it_is_young_and_revoked_at_the_end(
    connected: Connected,
) -> None:
    now = 0.0
    side = HostSide(connected, clock=lambda: now)
    first = await side.token("acme/tokens")
    now = 3 * 3600
    assert await side.token("acme/tokens") == first
    now = 5 * 3600
    second = await side.token("acme/tokens")
    assert second != first
    assert await tokens_of(connected, "acme/tokens") == [True, False]
    await side.revoke()
    await side.revoke()
    assert await tokens_of(connected, "acme/tokens") == [False, False]


async def test_token_of_a_plugin_that_was_renamed_is_revoked(connected: Connected) -> None:
    side = HostSide(connected)
    assert await side.token("acme/before") != await side.token("acme/after")
    assert await tokens_of(connected, "acme/before") == [False]
    assert await tokens_of(connected, "acme/after") == [True]
    await side.revoke()


async def test_runners_without_an_agent_get_one_with_a_name_that_is_free(
    connected: Connected, caller: Caller
) -> None:
    there = f"plugin:{PLUGIN}/there"
    await caller.apply(agent("mine", runner_id=there), agent("rain"))
    runners = {there, "plugin:acme/rain/default", "plugin:acme/rain/second"}
    wanted = {
        there: "mine",
        "plugin:acme/rain/default": "rain-2",
        "plugin:acme/rain/second": "rain-second",
    }
    side = HostSide(connected)
    assert await side.agents_for(runners, name="rain") == wanted
    assert await side.agents_for(runners, name="rain") == wanted
    made = await connected.admin.GetAgent(
        admin_pb2.GetAgentRequest(agent_id="rain-2"), metadata=connected.metadata
    )
    assert made.agent.runner_id == "plugin:acme/rain/default"


async def test_results_beyond_every_credit_come_whole_and_in_order(
    caller: Caller, relayed: AttachedRunner
) -> None:
    pieces = [f"{number} " for number in range(2_000)]
    answer = await caller.dispatch(
        scripted({"send": [delta(each) for each in pieces]}, say("end"), END), "relayed"
    )
    assert answer.text == "".join(pieces) + "end"


async def test_run_without_a_reader_holds_up_no_other(
    caller: Caller, relayed: AttachedRunner
) -> None:
    # More than all buffers on the way to a caller hold.
    stalled = caller.open(scripted({"flood": [100, 50, 2000]}, END), "relayed")
    answer = await collect_until(stalled, lambda so_far: so_far.shown != "")
    assert (await caller.dispatch(scripted(say("passes"), END), "relayed")).text == "passes"
    assert len((await collect(stalled, answer)).messages) == 100


async def test_interrupted_run_says_its_last_words(caller: Caller, relayed: AttachedRunner) -> None:
    last = {"send": [delta(" and no further")]}
    script = scripted(say("so far"), {"sleep": 3600}, on_interrupt=[last])
    call = caller.open(script, "relayed-polite")
    answer = await collect_until(call, lambda so_far: so_far.shown == "so far")
    await caller.cancel(answer.run_id)
    assert (await collect(call, answer)).messages == ["so far and no further"]


async def test_cancelled_run_is_cancelled_at_the_plugin(
    caller: Caller, relayed: AttachedRunner, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    call = caller.open(scripted(say("x"), {"sleep": 3600}, note=note), "relayed")
    answer = await collect_until(call, lambda so_far: so_far.shown == "x")
    await caller.cancel(answer.run_id)
    assert (await collect(call, answer)).failure == "cancelled"
    await eventually(lambda: "cancelled" in note.read_text())


async def test_plugin_that_ends_is_told_as_a_reload_and_comes_back(
    caller: Caller, relayed: AttachedRunner
) -> None:
    answer = await caller.dispatch(scripted(say("x"), {"exit": 9}), "relayed")
    assert answer.failure == "runner.crashed"
    assert "the development instance was reloaded or stopped" in answer.ended.failure.message
    again = await caller.dispatch(scripted(say("again"), END), "relayed")
    assert again.text == "again"


async def test_development_instance_waits_for_no_run_when_it_is_told_to_end(
    caller: Caller, host: HostProcess
) -> None:
    @agent_runner(name="default")
    async def endless(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("x")
        await asyncio.sleep(3600)

    _, token = await new_token(caller, "acme/bench")
    await caller.apply(agent("bench", runner_id="plugin:acme/bench/default"))
    server = RunnerServer(
        [endless],
        manifest=Manifest.minimal("acme/bench", "default"),
        attach=Attach(host=host.addresses["grpc"], token=token, development=True),
    )
    await server.start()
    await eventually(lambda: "acme/bench is serving" in host.log())
    call = caller.open(message(), "bench")
    answer = await collect_until(call, lambda so_far: so_far.shown == "x")
    async with asyncio.timeout(10):
        # The grace is for runs of a plugin that nobody waits for.
        assert await server.drain(30.0)
    answer = await collect(call, answer)
    assert answer.failure == "runner.unavailable"
    assert answer.ended.failure.message == "the development instance was reloaded or stopped"
