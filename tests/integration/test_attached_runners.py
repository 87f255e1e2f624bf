"""Runners of the SDK that attach to the real host."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import grpc.aio
import pytest
from runmesh.admin.v1 import admin_pb2, attach_tokens_pb2
from runmesh.v1 import discovery_pb2, gateway_pb2

from host_service.testing import RealHost
from runner_sdk import AgentRunner, Attach, Manifest, Result, RunContext, agent_runner
from runner_sdk.errors import ServeError
from runner_sdk.testing import RunnerServer
from tests.integration.host.network import Network
from tests.integration.host.waiting import eventually

SEVERAL = 20
MANY, LONG = 800, 20_000


class Talker(AgentRunner):
    """Says a word as often as it is told, or at length, and counts how far it has got."""

    name = "talker"

    def __init__(self) -> None:
        self.said: dict[str, int] = {}

    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        word, _, number = (ctx.text or "").partition(" ")
        for count in range(int(number or 1)):
            self.said[ctx.run_id] = count + 1
            yield ctx.reply("x" * LONG) if word == "long" else ctx.delta(f"{word}{count} ")


def manifest(*names: str) -> Manifest:
    return Manifest.minimal("acme/far", *names)


async def instances(host: RealHost) -> list[discovery_pb2.RunnerInstance]:
    listed = await host.discovery.ListRunners(
        discovery_pb2.ListRunnersRequest(), metadata=host.metadata
    )
    return list(listed.instances)


async def new_token(host: RealHost, **fields: Any) -> attach_tokens_pb2.CreateAttachTokenResponse:
    request = attach_tokens_pb2.CreateAttachTokenRequest(plugin_id="acme/far", **fields)
    return await host.admin.CreateAttachToken(request, metadata=host.metadata)


@contextlib.asynccontextmanager
async def attached(
    host: RealHost, *runners: AgentRunner, token: str, address: str = "", **fields: Any
) -> AsyncIterator[RunnerServer]:
    """A further process of the plugin."""
    server = RunnerServer(
        runners,
        manifest=manifest(*(runner.name for runner in runners)),
        attach=Attach(host=address or host.address, token=token, **fields),
    )
    await server.start()
    try:
        yield server
    finally:
        await server.drain(0.0)


async def until(host: RealHost, count: int) -> list[discovery_pb2.RunnerInstance]:
    """Waits until so many instances are listed."""
    await eventually(lambda: _are_listed(host, count))
    return await instances(host)


async def _are_listed(host: RealHost, count: int) -> bool:
    return len(await instances(host)) == count


async def _is_draining(host: RealHost) -> bool:
    return (await instances(host))[0].state == discovery_pb2.INSTANCE_STATE_DRAINING


async def test_attached_runner_is_listed_answers_and_reaches_the_host() -> None:
    @agent_runner(name="keeper")
    async def keeper(ctx: RunContext) -> AsyncIterator[Result]:
        await ctx.host.state.set("conversation", "seen", 2**60 + 1)
        found = await ctx.host.state.get("conversation", "seen")
        yield ctx.delta(f"{ctx.text}: {found.value}")

    async with RealHost(keeper, manifest=manifest("keeper"), attached=True) as host:
        (instance,) = await instances(host)
        assert (instance.found_by, instance.address) == ("attached", "")
        assert instance.sdk.startswith("runmesh-sdk python")
        outcome = await host.dispatch("hello")
        assert outcome.text == f"hello: {2**60 + 1}"


async def test_caller_that_does_not_read_holds_its_own_run_and_no_other() -> None:
    talker = Talker()
    async with RealHost(
        talker,
        manifest=manifest("talker"),
        attached=True,
        limits={"reader_buffer_bytes": 16384, "reader_patience_seconds": 60},
    ) as host:
        request = gateway_pb2.DispatchRequest(event=host.event(f"long {MANY}"))
        stalled: Any = host.gateway.Dispatch(request, metadata=host.metadata)
        last = await stalled.read()
        accepted = last.accepted
        outcomes = await asyncio.gather(
            *(host.dispatch(f"w{n} 200", conversation_id=f"c{n}") for n in range(SEVERAL - 1))
        )
        for number, outcome in enumerate(outcomes):
            assert outcome.text == "".join(f"w{number}{count} " for count in range(200))
        # Its author is held back: it could have said all of it many times over meanwhile.
        assert 0 < talker.said[accepted.run_id] < MANY
        while (item := await stalled.read()) is not grpc.aio.EOF:
            last = item
        assert last.ended.status == gateway_pb2.RUN_STATUS_COMPLETED
        assert talker.said[accepted.run_id] == MANY


async def test_runner_whose_connection_breaks_comes_back_and_leaves_no_ghost() -> None:
    talker, held = Talker(), asyncio.Event()

    @agent_runner(name="slow")
    async def slow(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("begun")
        await held.wait()

    async with RealHost() as host, Network(host.tcp_address) as network:
        made = await new_token(host)
        await host.apply(
            admin_pb2.Agent(id="a", runner_id="plugin:acme/far/talker"),
            admin_pb2.Agent(id="b", runner_id="plugin:acme/far/slow"),
        )
        async with attached(host, talker, slow, token=made.secret, address=network.address) as one:
            (first,) = await until(host, 1)
            run = asyncio.create_task(host.dispatch("hi", agent_id="b"))
            await eventually(lambda: one.active_runs)
            network.cut()
            assert (await run).failure == "runner.crashed"
            await eventually(lambda: network.connections)
            (second,) = await until(host, 1)
            assert second.instance_id == first.instance_id
            assert (await host.dispatch("hi", agent_id="a")).text == "hi0 "
            # Nobody would have read what the lost run had still to say.
            assert one.active_runs == 0


async def test_host_hears_of_a_connection_that_is_dead_without_a_word() -> None:
    async with RealHost() as host, Network(host.tcp_address) as network:
        made = await new_token(host)
        async with attached(host, Talker(), token=made.secret, address=network.address):
            await until(host, 1)
            # Nothing arrives any more, and nothing is closed.
            network.loses_all = True
            await until(host, 0)


async def test_event_that_comes_while_a_runner_is_away_waits_for_it() -> None:
    async with RealHost() as host:
        made = await new_token(host)
        async with attached(host, Talker(), token=made.secret):
            await until(host, 1)
            await host.apply(admin_pb2.Agent(id="a", runner_id="plugin:acme/far/talker"))
        await until(host, 0)
        waiting = asyncio.create_task(host.dispatch("hi", agent_id="a"))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        async with attached(host, Talker(), token=made.secret):
            assert (await asyncio.wait_for(waiting, 10)).text == "hi0 "


async def test_runner_that_drains_ends_its_runs_and_takes_no_more() -> None:
    held = asyncio.Event()

    @agent_runner(name="talker")
    async def slow(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("begun ")
        await held.wait()
        yield ctx.delta("and ended")

    async with RealHost(limits={"instance_wait_seconds": 0.2}) as host:
        made = await new_token(host)
        await host.apply(admin_pb2.Agent(id="a", runner_id="plugin:acme/far/talker"))
        async with attached(host, slow, token=made.secret) as server:
            await until(host, 1)
            run = asyncio.create_task(host.dispatch("hi", agent_id="a"))
            await eventually(lambda: server.active_runs)
            draining = asyncio.create_task(server.drain(10.0))
            await eventually(lambda: _is_draining(host))
            late = await host.dispatch("hi", agent_id="a", conversation_id="other")
            assert late.failure == "runner.unavailable"
            held.set()
            assert await draining
            assert (await run).text == "begun and ended"
            await until(host, 0)


async def test_development_instance_takes_the_runs_of_the_others() -> None:
    @agent_runner(name="talker")
    async def new(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("new")

    async with RealHost() as host:
        made = await new_token(host)
        await host.apply(admin_pb2.Agent(id="a", runner_id="plugin:acme/far/talker"))
        async with attached(host, Talker(), token=made.secret):
            await until(host, 1)
            async with attached(host, new, token=made.secret, development=True):
                found = await until(host, 2)
                assert sorted(each.development for each in found) == [False, True]
                outcomes = [await host.dispatch("old", agent_id="a") for _ in range(4)]
                assert {outcome.text for outcome in outcomes} == {"new"}
            await until(host, 1)
            assert (await host.dispatch("old", agent_id="a")).text == "old0 "


async def test_settings_that_change_reach_an_attached_runner_once_it_is_idle() -> None:
    held = asyncio.Event()

    @agent_runner(name="teller")
    async def teller(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta(f"{ctx.settings.get('colour')} ")
        if ctx.text == "wait":
            await held.wait()
            yield ctx.delta(f"still {ctx.settings.get('colour')}")

    async def colour(host: RealHost, name: str) -> None:
        settings = admin_pb2.PluginSettings(
            plugin_id="acme/far", settings_json=json.dumps({"colour": name})
        )
        await host.admin.Apply(admin_pb2.ApplyRequest(plugins=[settings]), metadata=host.metadata)

    async with RealHost() as host:
        made = await new_token(host)
        await colour(host, "red")
        await host.apply(admin_pb2.Agent(id="a", runner_id="plugin:acme/far/teller"))
        async with attached(host, teller, token=made.secret) as server:
            await until(host, 1)
            run = asyncio.create_task(host.dispatch("wait", agent_id="a"))
            await eventually(lambda: server.active_runs)
            await colour(host, "blue")
            await asyncio.sleep(0.3)
            assert server.active_runs == 1
            held.set()
            # It is not ended with its stream, and has the settings of its start.
            assert (await run).text == "red still red"

            async def is_blue() -> bool:
                return (await host.dispatch("hi", agent_id="a")).text == "blue "

            await eventually(is_blue)


async def test_revoked_token_ends_its_streams_and_runs_at_once() -> None:
    @agent_runner(name="talker")
    async def endless(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("begun")
        await asyncio.Event().wait()

    async with RealHost() as host:
        made = await new_token(host)
        await host.apply(admin_pb2.Agent(id="a", runner_id="plugin:acme/far/talker"))
        async with attached(host, endless, token=made.secret) as server:
            await until(host, 1)
            run = asyncio.create_task(host.dispatch("hi", agent_id="a"))
            await eventually(lambda: server.active_runs)
            request = attach_tokens_pb2.RevokeAttachTokenRequest(token_id=made.token.token_id)
            answer = await host.admin.RevokeAttachToken(request, metadata=host.metadata)
            assert answer.token.HasField("revoked_at")
            # At once: a host that only looked at its tokens now and then would take longer.
            async with asyncio.timeout(3):
                outcome = await run
                refused = await server.refused()
            assert outcome.failure == "runner.crashed"
            assert "UNAUTHENTICATED" in str(refused)
            assert await instances(host) == []


async def test_token_that_another_host_revoked_ends_its_streams_before_long() -> None:
    async with RealHost() as host:
        made = await new_token(host)
        async with attached(host, Talker(), token=made.secret) as server:
            await until(host, 1)
            # What another host on the same database does.
            await host.stores.attach_tokens.revoke(made.token.token_id, datetime.now(UTC))
            assert "UNAUTHENTICATED" in str(await asyncio.wait_for(server.refused(), 20))
            assert await instances(host) == []


async def test_token_that_expires_lets_what_it_began_end() -> None:
    held = asyncio.Event()

    @agent_runner(name="talker")
    async def slow(ctx: RunContext) -> AsyncIterator[Result]:
        await held.wait()
        yield ctx.delta("ended")

    async with RealHost() as host:
        request = attach_tokens_pb2.CreateAttachTokenRequest(plugin_id="acme/far")
        request.lifetime.FromMilliseconds(2000)
        made = await host.admin.CreateAttachToken(request, metadata=host.metadata)
        await host.apply(admin_pb2.Agent(id="a", runner_id="plugin:acme/far/talker"))
        async with attached(host, slow, token=made.secret) as server:
            await until(host, 1)
            run = asyncio.create_task(host.dispatch("hi", agent_id="a"))
            await eventually(lambda: _is_draining(host))
            held.set()
            assert (await run).text == "ended"
            await until(host, 0)
            assert "UNAUTHENTICATED" in str(await asyncio.wait_for(server.refused(), 10))
        async with attached(host, slow, token=made.secret) as late:
            told = str(await asyncio.wait_for(late.refused(), 10))
            # As every token that does not hold: it is not told which.
            assert "missing, unknown, expired or revoked" in told


async def test_runner_without_a_token_or_without_tls_is_told_what_to_do() -> None:
    for attach, advice in (
        (Attach(host="127.0.0.1:1", token=""), "runmesh runners token"),
        (Attach(host="host.example:7443", token="rma_x"), "RUNMESH_TLS_HOST_CA"),
    ):
        with pytest.raises(ServeError, match=advice):
            RunnerServer((Talker(),), manifest=manifest("talker"), attach=attach)


async def test_host_that_is_away_is_waited_for() -> None:
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(RealHost())
        made = await new_token(first)
        elsewhere = f"{first.address}-not-there"
        server = RunnerServer(
            (Talker(),),
            manifest=manifest("talker"),
            attach=Attach(host=elsewhere, token=made.secret),
        )
        await server.start()
        waiting = asyncio.create_task(server.refused())
        await asyncio.sleep(0.5)
        assert not waiting.done()
        waiting.cancel()
        assert await server.drain(0.0)


async def test_wrong_token_is_refused_for_good() -> None:
    async with RealHost() as host:
        async with attached(host, Talker(), token="rma_wrong") as server:
            refused = await asyncio.wait_for(server.refused(), 10)
        assert "UNAUTHENTICATED" in str(refused)
        request = attach_tokens_pb2.CreateAttachTokenRequest(plugin_id="no plugin id")
        with pytest.raises(grpc.aio.AioRpcError, match="author/name"):
            await host.admin.CreateAttachToken(request, metadata=host.metadata)
