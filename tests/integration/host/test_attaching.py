"""What a host does with runners that attach, as a runner without an SDK sees it."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from runmesh.v1 import (
    attach_pb2,
    attach_pb2_grpc,
    discovery_pb2,
    gateway_pb2,
    manifest_pb2,
    result_pb2,
    types_pb2,
)

from stores import Stores
from stores.audit import AuditOutcome, AuditQuery
from tests.integration.host.attached import new_token
from tests.integration.host.calls import Caller, agent, calling, message
from tests.integration.host.host_process import HostProcess
from tests.integration.host.refusals import Refusal, refused
from tests.integration.host.waiting import eventually

PLUGIN = "acme/byhand"
RUNNER = f"plugin:{PLUGIN}/default"
_NOT_TAKEN_IN = {
    discovery_pb2.INSTANCE_STATE_REFUSED,
    discovery_pb2.INSTANCE_STATE_INCOMPATIBLE,
}


def manifest(id: str = RUNNER, **fields: Any) -> manifest_pb2.RunnerManifest:
    return manifest_pb2.RunnerManifest(
        id=id,
        name="default",
        label=types_pb2.LocalizedText(text={"en_US": "by hand"}),
        protocol_version="1",
        version="1.0.0",
        **fields,
    )


def hello(
    *runners: manifest_pb2.RunnerManifest,
    plugin_id: str = PLUGIN,
    instance_id: str = "one",
    **fields: Any,
) -> attach_pb2.AttachRequest:
    handshake = discovery_pb2.HandshakeResponse(
        plugin_id=plugin_id, plugin_version="1.0.0", instance_id=instance_id, **fields
    )
    said = attach_pb2.AttachHello(
        protocol_versions=["1"], handshake=handshake, runners=runners or [manifest()]
    )
    return attach_pb2.AttachRequest(hello=said)


class ByHand:
    """A runner whose messages the test writes."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def say(self, **message: Any) -> None:
        await self.call.write(attach_pb2.AttachRequest(**message))

    async def hear(self, *, credit: bool = False) -> attach_pb2.AttachResponse:
        """Waits for the next message, or the next but credit."""
        while True:
            message = await asyncio.wait_for(self.call.read(), 10)
            assert isinstance(message, attach_pb2.AttachResponse), message
            if credit or not message.HasField("credit"):
                return message

    async def take_run(self) -> str:
        """Waits for a run, and returns its id."""
        heard = await self.hear()
        assert heard.HasField("run"), heard
        return heard.run.context.run_id

    async def send(self, run_id: str, *texts: str, first: int = 1) -> None:
        results = [
            result_pb2.RunResult(
                run_id=run_id, sequence=first + n, message_delta=result_pb2.MessageDelta(text=text)
            )
            for n, text in enumerate(texts)
        ]
        await self.say(results=attach_pb2.AttachResults(run_id=run_id, results=results))

    async def complete(self, run_id: str, sequence: int) -> None:
        done = result_pb2.RunResult(
            run_id=run_id,
            sequence=sequence,
            run_completed=result_pb2.RunCompleted(finish_reason="stop"),
        )
        await self.say(results=attach_pb2.AttachResults(run_id=run_id, results=[done]))
        await self.say(run_ended=attach_pb2.AttachRunEnded(run_id=run_id))


def opened(caller: Caller, token: str) -> Any:
    stub: Any = attach_pb2_grpc.AttachServiceStub(caller.channel)
    return stub.Attach(metadata=(("authorization", f"Bearer {token}"),))


@asynccontextmanager
async def by_hand(
    caller: Caller, token: str, said: attach_pb2.AttachRequest
) -> AsyncIterator[ByHand]:
    call = opened(caller, token)
    await call.write(said)
    runner = ByHand(call)
    assert (await runner.hear()).HasField("welcome")
    try:
        yield runner
    finally:
        call.cancel()
        # The host has let it go before the next test attaches.
        await eventually(lambda: _is_gone(caller, said.hello.handshake.instance_id))


async def _is_gone(caller: Caller, instance_id: str) -> bool:
    return instance_id not in {each.instance_id for each in await instances(caller)}


async def instances(caller: Caller) -> list[discovery_pb2.RunnerInstance]:
    listed = await caller.discovery.ListRunners(
        discovery_pb2.ListRunnersRequest(), metadata=caller.metadata
    )
    return [
        each
        for each in listed.instances
        if each.plugin_id == PLUGIN and each.state not in _NOT_TAKEN_IN
    ]


async def refused_instance(caller: Caller) -> discovery_pb2.RunnerInstance:
    """What is listed of an attempt that was refused, once."""
    listed = await caller.discovery.ListRunners(
        discovery_pb2.ListRunnersRequest(), metadata=caller.metadata
    )
    (found,) = [
        each
        for each in listed.instances
        if each.plugin_id == PLUGIN and each.state in _NOT_TAKEN_IN
    ]
    return found


async def refusal_of(caller: Caller, token: str, *said: attach_pb2.AttachRequest) -> Refusal:
    call = opened(caller, token)
    for each in said:
        await call.write(each)
    return await refused(asyncio.wait_for(call.read(), 20))


@pytest.fixture
async def token(caller: Caller) -> str:
    await caller.apply(agent("byhand", runner_id=RUNNER))
    return (await new_token(caller, PLUGIN))[1]


async def test_hello_is_answered_with_the_host_and_what_may_be_sent(
    caller: Caller, token: str
) -> None:
    call = opened(caller, token)
    await call.write(hello())
    welcome = (await call.read()).welcome
    assert welcome.protocol_version == "1"
    assert welcome.initial_credit == 64
    assert list(welcome.host.protocol_versions) == ["1"]
    (listed,) = await instances(caller)
    assert (listed.found_by, listed.address, listed.instance_id) == ("attached", "", "one")
    assert listed.state == discovery_pb2.INSTANCE_STATE_SERVING
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK
    assert await instances(caller) == []


async def test_another_plugin_than_the_tokens_is_refused_and_written_down(
    caller: Caller, token: str, stores: Stores
) -> None:
    told = await refusal_of(caller, token, hello(plugin_id="acme/another"))
    assert (told.code, told.reason) == ("PERMISSION_DENIED", "UNAUTHORIZED")

    async def is_written_down() -> bool:
        rows = (await stores.audit.page(AuditQuery())).items
        return ("Attach", AuditOutcome.REFUSED, "UNAUTHORIZED", f"plugin {PLUGIN}") in {
            (row.rpc, row.outcome, row.reason, row.resource) for row in rows
        }

    # Refusals that are alike are counted for a moment before they are written.
    await eventually(is_written_down)


async def test_no_protocol_version_in_common_is_told_as_that(caller: Caller, token: str) -> None:
    said = hello()
    said.hello.protocol_versions[:] = ["77"]
    told = await refusal_of(caller, token, said)
    assert (told.code, told.reason) == ("FAILED_PRECONDITION", "INCOMPATIBLE")


async def test_refused_attempts_are_listed_once_until_a_good_one(
    caller: Caller, token: str
) -> None:
    old = hello()
    old.hello.protocol_versions[:] = ["77"]
    await refusal_of(caller, token, old)
    listed = await refused_instance(caller)
    assert listed.state == discovery_pb2.INSTANCE_STATE_INCOMPATIBLE
    assert listed.found_by == "attached"
    assert listed.reason.startswith("it may not attach: ")
    for _ in range(3):
        await refusal_of(caller, token, hello(plugin_id="acme/another"))
    listed = await refused_instance(caller)
    assert listed.state == discovery_pb2.INSTANCE_STATE_REFUSED
    assert "the hello names 'acme/another'" in listed.reason
    async with by_hand(caller, token, hello()):
        (listed,) = await instances(caller)
        assert listed.state == discovery_pb2.INSTANCE_STATE_SERVING
        with pytest.raises(ValueError, match="not enough values"):
            await refused_instance(caller)


async def test_stream_that_never_says_hello_is_ended_and_listed(caller: Caller, token: str) -> None:
    call = opened(caller, token)
    told = await refused(asyncio.wait_for(call.read(), 50))
    assert told.code == "DEADLINE_EXCEEDED"
    assert "no hello came within 15 s" in (await refused_instance(caller)).reason


@pytest.mark.parametrize(
    "said",
    [
        attach_pb2.AttachRequest(health=attach_pb2.AttachHealth(serving=True)),
        attach_pb2.AttachRequest(),
        attach_pb2.AttachRequest(hello=attach_pb2.AttachHello(protocol_versions=["1"])),
        hello(instance_id=""),
        hello(max_concurrent_runs=-1),
    ],
)
async def test_hello_that_is_none_is_refused_in_words(
    caller: Caller, token: str, said: attach_pb2.AttachRequest
) -> None:
    told = await refusal_of(caller, token, said)
    assert (told.code, told.reason) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
    assert await instances(caller) == []


async def test_one_bad_manifest_costs_only_itself(caller: Caller, token: str) -> None:
    bad = manifest("plugin:acme/foreign/default")
    async with by_hand(caller, token, hello(manifest(), bad)):
        (listed,) = await instances(caller)
        assert list(listed.runner_ids) == [RUNNER]
        mesh = await caller.discovery.ListRunners(
            discovery_pb2.ListRunnersRequest(), metadata=caller.metadata
        )
        assert bad.id in {fault.runner_id for fault in mesh.faults}


async def test_run_goes_down_and_its_results_up(caller: Caller, token: str) -> None:
    async with by_hand(caller, token, hello()) as runner:
        dispatching = asyncio.ensure_future(caller.dispatch(message("hi"), "byhand"))
        heard = await runner.hear()
        assert heard.run.runner_id == RUNNER
        # It gave no address of the host, and so gets none: it knows where it dialled.
        assert heard.run.host_access.address == ""
        assert heard.metadata["traceparent"]
        run_id = heard.run.context.run_id
        await runner.send(run_id, "a", "b")
        await runner.complete(run_id, 3)
        answer = await dispatching
        assert (answer.text, answer.ended.instance_id) == ("ab", "one")


async def test_more_results_than_were_allowed_end_that_run_alone(
    caller: Caller, token: str
) -> None:
    async with by_hand(caller, token, hello()) as runner:
        greedy = asyncio.ensure_future(caller.dispatch(message("hi"), "byhand"))
        greedy_id = await runner.take_run()
        other = asyncio.ensure_future(caller.dispatch(message("hi"), "byhand"))
        other_id = await runner.take_run()
        await runner.send(greedy_id, *["x"] * 65)
        assert (await greedy).failure == "runner.protocol"
        heard = await runner.hear()
        assert heard.cancel.run_id == greedy_id
        await runner.send(greedy_id, "too late", first=66)
        await runner.send(other_id, "fine")
        await runner.complete(other_id, 2)
        assert (await other).text == "fine"


async def test_reading_gives_credit_back(caller: Caller, token: str) -> None:
    async with by_hand(caller, token, hello()) as runner:
        dispatching = asyncio.ensure_future(caller.dispatch(message("hi"), "byhand"))
        run_id = await runner.take_run()
        await runner.send(run_id, *["x"] * 64)
        credit = (await runner.hear(credit=True)).credit
        assert (credit.run_id, credit.results > 0) == (run_id, True)
        await runner.send(run_id, *["y"] * credit.results, first=65)
        await runner.complete(run_id, 65 + credit.results)
        assert (await dispatching).text == "x" * 64 + "y" * credit.results


async def test_status_of_a_run_means_what_it_means_from_a_call(caller: Caller, token: str) -> None:
    async with by_hand(caller, token, hello()) as runner:
        for code, failure in (
            (grpc.StatusCode.INTERNAL, "runner.error"),
            (grpc.StatusCode.NOT_FOUND, "runner.unavailable"),
            (grpc.StatusCode.OK, "runner.protocol"),
        ):
            dispatching = asyncio.ensure_future(caller.dispatch(message("hi"), "byhand"))
            run_id = await runner.take_run()
            ended = attach_pb2.AttachRunEnded(run_id=run_id, status_code=code.value[0])
            await runner.say(run_ended=ended)
            assert (await dispatching).failure == failure


async def test_as_many_runs_as_it_takes_are_sent_and_no_more(caller: Caller, token: str) -> None:
    async with by_hand(caller, token, hello(max_concurrent_runs=1)) as runner:
        first = asyncio.ensure_future(caller.dispatch(message("hi"), "byhand"))
        first_id = await runner.take_run()
        second = asyncio.ensure_future(caller.dispatch(message("hi"), "byhand"))
        await asyncio.sleep(0.2)
        await runner.send(first_id, "one")
        await runner.complete(first_id, 2)
        assert (await first).text == "one"
        second_id = await runner.take_run()
        await runner.send(second_id, "two")
        await runner.complete(second_id, 2)
        assert (await second).text == "two"


async def test_cancelled_run_is_called_off(caller: Caller, token: str) -> None:
    async with by_hand(caller, token, hello()) as runner:
        run = await caller.submit(message("hi"), "byhand")
        run_id = await runner.take_run()
        cancelled = await caller.cancel(run.run_id, "enough")
        assert cancelled.status == gateway_pb2.RUN_STATUS_CANCELLED
        assert (await runner.hear()).cancel.run_id == run_id


async def test_interrupt_is_asked_for_and_its_answer_waited_for(caller: Caller, token: str) -> None:
    able = manifest_pb2.RunnerCapabilities(interrupt=True)
    async with by_hand(caller, token, hello(manifest(capabilities=able))) as runner:
        run = await caller.submit(message("hi"), "byhand")
        run_id = await runner.take_run()
        cancelling = asyncio.ensure_future(caller.cancel(run.run_id))
        heard = await runner.hear()
        assert heard.interrupt.run_id == run_id
        assert heard.interrupt.grace.ToSeconds() == 5
        await runner.send(run_id, "last words")
        answer = attach_pb2.AttachInterruptAnswer(run_id=run_id, was_active=True)
        await runner.say(interrupt_answer=answer)
        # Well within the grace that it would have had without an answer.
        cancelled = await asyncio.wait_for(cancelling, 3)
        assert cancelled.status == gateway_pb2.RUN_STATUS_CANCELLED
        assert (await caller.watch(run.run_id)).text == "last words"


@pytest.mark.parametrize("data", [b"\xff\xff", hello().SerializeToString()])
async def test_what_is_no_message_ends_the_stream_in_words(
    caller: Caller, token: str, data: bytes
) -> None:
    open_call: Any = caller.channel.stream_stream("/runmesh.v1.AttachService/Attach")
    call = open_call(metadata=(("authorization", f"Bearer {token}"),))
    await call.write(hello().SerializeToString())
    await call.read()
    await call.write(data)
    told = await refused(asyncio.wait_for(call.read(), 10))
    assert (told.code, told.reason) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
    await eventually(lambda: _is_gone(caller, "one"))


async def test_instance_that_attaches_again_takes_its_own_place(caller: Caller, token: str) -> None:
    async with by_hand(caller, token, hello()) as first:
        run = await caller.submit(message("hi"), "byhand")
        await first.take_run()
        async with by_hand(caller, token, hello()) as second:
            assert len(await instances(caller)) == 1
            assert (await caller.watch(run.run_id)).failure == "runner.crashed"
            told = await refused(first.hear())
            assert told.reason == "UNAVAILABLE"
            again = asyncio.ensure_future(caller.dispatch(message("hi"), "byhand"))
            run_id = await second.take_run()
            await second.send(run_id, "back")
            await second.complete(run_id, 2)
            assert (await again).text == "back"


async def test_runner_hears_that_its_host_shuts_down_when_its_runs_have_ended(
    tmp_path: Path,
) -> None:
    host = HostProcess(tmp_path / "data")
    with host:
        async with calling(host.addresses["grpc"], host.key) as caller:
            _, token = await new_token(caller, PLUGIN)
            await caller.apply(agent("byhand", runner_id=RUNNER))
            call = opened(caller, token)
            await call.write(hello())
            runner = ByHand(call)
            assert (await runner.hear()).HasField("welcome")
            dispatching = asyncio.ensure_future(caller.dispatch(message("hi"), "byhand"))
            run_id = await runner.take_run()
            host.signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            await runner.send(run_id, "in time")
            await runner.complete(run_id, 2)
            assert (await dispatching).text == "in time"
            told = await refused(runner.hear())
            assert (told.code, told.reason) == ("UNAVAILABLE", "UNAVAILABLE")
            assert "shutting down" in told.message
        assert host.wait() == 0
