"""Plain code in a thread uses every client, and learns of a cancellation where it waits."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

from runmesh.v1 import host_api_pb2 as api

from runner_sdk import Result, RunContext, agent_runner
from runner_sdk._blocking import Blocking
from runner_sdk.testing import StandInHost
from tests.unit.runner_sdk.loopback import serving


def _prepared(runner: Any) -> StandInHost:
    host = serving(runner)
    host.add_model("m", "Hello, world")
    host.add_tool("double", lambda parameters: parameters["n"] * 2)
    host.add_knowledge_base("b", "Tea is hot.")
    host.add_history("one", "two", "three")
    host.set_prompt("Be kind.")
    return host


async def test_plain_code_uses_every_client() -> None:
    seen: dict[str, Any] = {}

    @agent_runner
    def asks(ctx: RunContext) -> Iterator[Result]:
        on, host = ctx.block_on, ctx.host
        seen["prompt"] = on(host.prompt.get()).messages[0].parts[0].text
        seen["model"] = on(host.models.invoke("m", "hi")).text
        with ctx.block_with(host.models.stream("m", "hi")) as stream:
            for piece in ctx.block_iter(stream):
                yield ctx.delta(piece.text)
        seen["answer"] = stream.answer.text
        seen["tool"] = on(host.tools.call("double", {"n": 4})).result
        seen["knowledge"] = [hit.text for hit in on(host.knowledge.retrieve("tea"))]
        seen["history"] = [item.text for item in ctx.block_iter(host.history.iterate())]
        seen["events"] = len(list(ctx.block_iter(host.events.iterate())))
        seen["state"] = on(host.state["runner"].update("n", lambda n: n + 1, default=1))
        on(host.storage.set("plugin", "k", b"v"))
        seen["storage"] = [entry.key for entry in ctx.block_iter(host.storage.iterate("plugin"))]
        ref = on(host.artifacts.create(b"x" * 600_000))
        with ctx.block_with(host.artifacts.open(ref)) as file:
            seen["head"] = on(file.read(2))
            seen["size"] = 2 + sum(len(chunk) for chunk in ctx.block_iter(file))
        with ctx.block_with(host.steering.pull()) as inputs:
            yield ctx.delta("!")
            [follow_up] = [next(ctx.block_iter(inputs))]
            on(follow_up.acknowledge())
        seen["steering"] = follow_up.text

    async with _prepared(asks) as host:
        call = host.start("hi")
        async for result in call:
            if result.message_delta.text == "!":
                call.steer("more")
        outcome = await call.outcome()

    assert outcome.text == "Hello, world!"
    assert seen == {
        "prompt": "Be kind.",
        "model": "Hello, world",
        "answer": "Hello, world",
        "tool": 8,
        "knowledge": ["Tea is hot."],
        "history": ["three", "two", "one"],
        "events": 1,
        "state": 2,
        "storage": ["k"],
        "head": b"xx",
        "size": 600_000,
        "steering": "more",
    }
    assert len(call.acknowledged) == 1


async def test_iterating_that_is_left_early_ends_the_call() -> None:
    ended: list[bool] = []

    @agent_runner
    def looks(ctx: RunContext) -> None:
        request = api.StreamArtifactRequest(artifact_id=ctx.text)
        for _ in ctx.block_iter(ctx.host.stream("StreamArtifact", request)):
            break
        for _ in ctx.block_iter(ctx.host.steering):
            break
        ended.append(True)

    async with serving(looks) as host:
        ref = host.add_artifact(bytes(5_000_000))
        call = host.start(ref.artifact_id)
        call.steer("x")
        await call.outcome()

    assert ended == [True]


async def test_waiting_in_plain_codes_way_on_the_loop_is_refused() -> None:
    @agent_runner
    async def asks(ctx: RunContext) -> None:
        ctx.block_on(ctx.host.prompt.get())

    async with serving(asks) as host:
        outcome = await host.run("hi")

    assert outcome.failed is not None
    assert "here, use `await`" in outcome.failed.message


async def test_an_error_inside_a_with_is_told_to_what_was_entered() -> None:
    seen: list[Any] = []

    class Resource:
        async def __aenter__(self) -> str:
            return "entered"

        async def __aexit__(self, kind: object, error: object, trace: object) -> bool:
            seen.append(kind)
            return kind is KeyError

    @agent_runner
    def fails(ctx: RunContext) -> None:
        with ctx.block_with(Resource()) as entered:
            seen.append(entered)
        for error in (KeyError, ZeroDivisionError):
            with ctx.block_with(Resource()):
                raise error

    async with serving(fails) as host:
        outcome = await host.run("hi")

    assert seen == ["entered", None, KeyError, ZeroDivisionError]
    assert outcome.failed is not None
    assert outcome.failed.message.startswith("ZeroDivisionError")


async def test_a_cancellation_is_raised_where_plain_code_waits() -> None:
    waits, caught = threading.Event(), threading.Event()

    @agent_runner
    def waits_for_ever(ctx: RunContext) -> Iterator[Result]:
        yield ctx.delta("ready")
        try:
            waits.set()
            for _ in ctx.block_iter(ctx.host.steering):
                pass
        except asyncio.CancelledError:
            # What is cleaned up can wait for calls again, and say a last word.
            ctx.block_on(ctx.host.state.set("runner", "cleaned", "yes"))
            yield ctx.delta(" and gone")
            caught.set()
            raise

    async with serving(waits_for_ever) as host:
        call = host.start("hi", timeout_seconds=None)
        await anext(call)
        await asyncio.to_thread(waits.wait, 5)
        reader = asyncio.create_task(call.outcome())
        assert await asyncio.wait_for(call.interrupt(), 5)
        outcome = await asyncio.wait_for(reader, 5)

        assert host.state("runner") == {"cleaned": "yes"}
    assert caught.is_set()
    assert outcome.streamed_text == "ready and gone"
    assert outcome.failed is not None
    assert outcome.failed.code == "cancelled"


async def test_a_caller_that_leaves_ends_what_plain_code_waits_for() -> None:
    ended = threading.Event()
    waits = threading.Event()

    @agent_runner
    def waits_for_ever(ctx: RunContext) -> Iterator[Result]:
        yield ctx.delta("ready")
        try:
            with ctx.block_with(ctx.host.steering.pull()) as inputs:
                waits.set()
                ctx.block_on(anext(inputs))
        finally:
            ended.set()

    async with serving(waits_for_ever) as host:
        call = host.start("hi", timeout_seconds=None)
        await anext(call)
        await asyncio.to_thread(waits.wait, 5)
        call.cancel()
        assert await asyncio.to_thread(ended.wait, 5)
        await host.server._runs.ended()
        assert host.server.active_runs == 0


async def test_a_wait_is_cancelled_before_the_loop_has_even_begun_it() -> None:
    blocking = Blocking(asyncio.get_running_loop())
    begun: list[bool] = []
    outcome: list[BaseException] = []

    async def call() -> None:
        begun.append(True)

    def wait() -> None:
        try:
            blocking.on(call())
        except BaseException as error:  # noqa: BLE001 - what it is, is the question
            outcome.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    # The loop stands still meanwhile: the call cannot begin.
    while thread.ident not in blocking._waits:
        time.sleep(0.001)  # noqa: ASYNC251 - see above
    assert blocking.cancel(thread.ident)
    await asyncio.to_thread(thread.join, 5)

    assert [type(error) for error in outcome] == [asyncio.CancelledError]
    assert begun == []
    assert not blocking.cancel(thread.ident)
