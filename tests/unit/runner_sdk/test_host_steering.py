"""Follow-up input, as runners take it up."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from runmesh.v1 import host_api_pb2 as api

from runner_sdk import Manifest, Result, RunContext, agent_runner, errors
from runner_sdk.host import FollowUp
from tests.unit.runner_sdk.loopback import a_host_api, a_run, serving


@agent_runner
async def takes_two(ctx: RunContext) -> AsyncIterator[Result]:
    yield ctx.delta("ready ")
    taken = 0
    async for follow_up in ctx.host.steering:
        yield ctx.delta(f"{follow_up.text} ")
        await follow_up.acknowledge()
        taken += 1
        if taken == 2:
            break


async def test_follow_up_input_is_iterated_over_and_acknowledged() -> None:
    async with serving(takes_two) as host:
        call = host.start("hi")
        await anext(call)
        ids = [call.steer(text) for text in ("one", "two", "three")]
        outcome = await call.outcome()

    assert outcome.text == "ready one two "
    assert call.acknowledged == ids[:2]


async def _until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the stand-in has no event for what it hands out
            await asyncio.sleep(0.005)


async def test_a_look_returns_what_has_arrived_and_waits_for_nothing() -> None:
    steps: asyncio.Queue[str] = asyncio.Queue()
    seen: list[list[FollowUp]] = []

    @agent_runner
    async def works(ctx: RunContext) -> AsyncIterator[Result]:
        async with ctx.host.steering.pull() as inputs:
            yield ctx.delta("ready ")
            while await steps.get() == "look":
                seen.append(await inputs.waiting())
                yield ctx.delta("looked ")
        await ctx.host.steering.acknowledge([*seen[1], "made up"])

    async with serving(works) as host:
        call = host.start("hi")
        await anext(call)
        steps.put_nowait("look")
        await anext(call)
        ids = [call.steer("one"), call.steer("two")]
        await asyncio.sleep(0.05)
        steps.put_nowait("look")
        await anext(call)
        steps.put_nowait("stop")
        outcome = await call.outcome()

    assert [[follow_up.text for follow_up in look] for look in seen] == [[], ["one", "two"]]
    first = seen[1][0]
    assert (first.actor is not None and first.actor.id, first.waited_seconds) == ("user", 0.0)
    assert first.event.type == "message.received"
    assert first.input.parts[0].text == "one"
    assert outcome.failed is not None
    assert "NOT_FOUND" in outcome.failed.message
    assert call.acknowledged == []
    assert ids == [follow_up.proto.steering_id for follow_up in seen[1]]


async def test_a_wait_that_is_given_up_loses_nothing() -> None:
    async with a_run() as (host, ctx):
        [run] = host._api._runs.values()
        async with ctx.host.steering.pull() as inputs:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(inputs)
            host._world.steering.push(run, "late")
            follow_up = await asyncio.wait_for(anext(inputs), 5)
            assert follow_up.text == "late"
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "steering"]


async def test_more_than_fits_waits_at_the_host() -> None:
    async with a_run() as (host, ctx):
        [run] = host._api._runs.values()
        for n in range(200):
            host._world.steering.push(run, str(n))
        async with ctx.host.steering.pull() as inputs:
            texts = [(await anext(inputs)).text for _ in range(200)]

    assert texts == [str(n) for n in range(200)]


async def test_a_runner_without_the_capability_is_refused() -> None:
    manifest = Manifest.minimal("acme/test")
    manifest.runners["default"].capabilities.steering = False
    async with a_run(manifest=manifest) as (_, ctx):
        async with ctx.host.steering.pull() as inputs:
            for _ in range(2):
                with pytest.raises(errors.Unauthorized, match="the capability steering"):
                    await anext(inputs)
            with pytest.raises(errors.Unauthorized):
                await inputs.waiting()
        with pytest.raises(errors.Unauthorized):
            await ctx.host.steering.acknowledge(["x"])


async def test_a_new_stream_ends_the_one_before_it_and_begins_with_what_is_left() -> None:
    async with a_run() as (host, ctx):
        [run] = host._api._runs.values()
        for text in ("one", "two"):
            host._world.steering.push(run, text)
        async with ctx.host.steering.pull() as first:
            await (await anext(first)).acknowledge()
            assert (await anext(first)).text == "two"
            async with ctx.host.steering.pull() as second:
                assert (await anext(second)).text == "two"
                assert [entry async for entry in first] == []


async def test_what_was_read_comes_before_the_end_and_the_end_stays() -> None:
    async def two_and_away(_: Any, context: Any) -> None:
        for steering_id in ("a", "b"):
            await context.write(api.PullSteeringResponse(steering_id=steering_id))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "away")

    async def one_and_end(_: Any, context: Any) -> None:
        await context.write(api.PullSteeringResponse(steering_id="a"))

    async with (
        a_host_api({"PullSteering": two_and_away}) as address,
        a_run(address=address) as (_, ctx),
        ctx.host.steering.pull() as inputs,
    ):
        await _until(lambda: inputs._arrived.qsize() == 3)
        assert [entry.proto.steering_id for entry in await inputs.waiting()] == ["a", "b"]
        for look in (inputs.waiting, inputs.__anext__, inputs.waiting):
            with pytest.raises(errors.HostUnavailable, match="away"):
                await look()
    async with (
        a_host_api({"PullSteering": one_and_end}) as address,
        a_run(address=address) as (_, ctx),
        ctx.host.steering.pull() as inputs,
    ):
        assert [entry.proto.steering_id async for entry in inputs] == ["a"]
        assert [entry async for entry in inputs] == []
        assert await inputs.waiting() == []
