"""Messages beyond gRPC's 4 MiB: they go through in pieces, or fail alone, by our own rule."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from runmesh.v1 import event_pb2, gateway_pb2, host_api_pb2, result_pb2, types_pb2
from runmesh.v1.gateway_pb2_grpc import GatewayServiceStub

from host_service.testing import RealHost
from runner_sdk import AgentRunner, HostCallError, Manifest, Result, RunContext, agent_runner
from runner_sdk.testing import Unchecked
from tests.integration.host.refusals import refused

MIB = 1024 * 1024
ACME = Manifest.minimal("acme/large")
FILE = os.urandom(20 * MIB)
# What gRPC does where nobody says otherwise; the path of a socket is no authority.
PLAIN = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def upload(host: RealHost, data: bytes, chunk_bytes: int = MIB) -> types_pb2.ArtifactRef:
    """Stores a file as a caller."""
    request = gateway_pb2.GatewayServiceCreateArtifactRequest

    async def requests() -> AsyncIterator[gateway_pb2.GatewayServiceCreateArtifactRequest]:
        yield request(header=host_api_pb2.ArtifactHeader(type="file", name="large.bin"))
        for at in range(0, len(data), chunk_bytes):
            yield request(chunk=data[at : at + chunk_bytes])

    answer = await host.gateway.CreateArtifact(requests(), metadata=host.metadata)
    return answer.artifact


async def download(host: RealHost, artifact_id: str) -> bytes:
    """Reads a file as a caller."""
    request = gateway_pb2.GatewayServiceReadArtifactRequest(artifact_id=artifact_id)
    call = host.gateway.ReadArtifact(request, metadata=host.metadata)
    return b"".join([response.data async for response in call])


@agent_runner
async def turns_files(ctx: RunContext) -> AsyncIterator[Result]:
    """Reads the file that came, and makes one of the same bytes in reverse."""
    (given,) = ctx.input.attachments
    async with ctx.host.artifacts.open(given) as file:
        data = await file.read()
    made = await ctx.host.artifacts.create(data[::-1], type="file", name="turned.bin")
    yield ctx.artifact(made)
    yield ctx.reply(digest(data))


async def test_file_of_twenty_mebibytes_goes_in_through_a_run_and_out() -> None:
    async with RealHost(turns_files, manifest=ACME) as host:
        ref = await upload(host, FILE)
        outcome = await host.dispatch("turn it", input=event_pb2.EventInput(attachments=[ref]))
        (made,) = outcome.of_kind("artifact_created")
        turned = await download(host, made.ref.artifact_id)

    assert outcome.status == "COMPLETED"
    assert outcome.text == digest(FILE)
    assert turned == FILE[::-1]


@agent_runner
async def overdoes(ctx: RunContext) -> Result:
    """Asks the host to keep what is too large, and then what is not."""
    refusals = []
    for call in (
        ctx.host.storage.set("plugin", "k", bytes(6 * MIB)),
        ctx.host.state.set("conversation", "k", "x" * (6 * MIB)),
        ctx.host.storage.set("plugin", "k", bytes(18 * MIB)),
    ):
        try:
            await call
        except HostCallError as error:
            refusals.append(f"{type(error).__name__} {error}")
    largest = os.urandom(3 * MIB)
    await ctx.host.storage.set("plugin", "k", largest)
    assert await ctx.host.storage.get("plugin", "k") == largest
    return ctx.reply("\n".join(refusals))


async def test_value_that_is_too_large_is_refused_and_its_run_goes_on() -> None:
    async with RealHost(overdoes, manifest=ACME) as host:
        outcome = await host.dispatch("go on")

    assert outcome.status == "COMPLETED"
    storage, state, transport = outcome.text.splitlines()
    for told, size, limit in ((storage, 6 * MIB, 3 * MIB), (state, 6 * MIB + 2, MIB // 4)):
        assert told.startswith("PayloadTooLarge")
        assert str(size) in told
        assert str(limit) in told
    assert transport.startswith("PayloadTooLarge")


class Talks(AgentRunner):
    """Says a word, waits until it may go on, and says another; or what it is told to overdo."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def run(self, ctx: RunContext) -> AsyncIterator[Any]:
        match ctx.text:
            case "wait":
                yield ctx.delta("before ")
                await self.go.wait()
                yield ctx.delta("after")
            case "reply":
                yield ctx.reply("x" * (6 * MIB))
            case "result":
                yield Unchecked((_delta(ctx.run_id, 6 * MIB),))
            case "results":
                yield Unchecked(tuple(_delta(ctx.run_id, MIB - 200, n) for n in range(1, 7)))
            case "transport":
                yield Unchecked((_delta(ctx.run_id, 18 * MIB),))
            case _:
                yield ctx.reply("said")


def _delta(run_id: str, size: int, number: int = 1) -> result_pb2.RunResult:
    delta = result_pb2.MessageDelta(text="x" * size)
    return result_pb2.RunResult(run_id=run_id, sequence=number, message_delta=delta)


async def test_result_that_is_too_large_ends_its_own_run_and_no_other() -> None:
    runner = Talks()
    async with RealHost(runner, manifest=ACME) as host:
        other = await host.submit("wait")
        outcomes = {
            text: await host.dispatch(text) for text in ("reply", "result", "results", "transport")
        }
        runner.go.set()
        waited = await host.watch(other.run_id)
        after = await host.dispatch("small")

    for text, (size, limit) in {
        "result": (6 * MIB, MIB),
        # Six that are small enough, of one message that is not.
        "results": (6 * (MIB - 200), 3 * MIB),
        "transport": (18 * MIB, 16 * MIB),
    }.items():
        failed = outcomes[text]
        assert size > limit
        assert (failed.status, failed.failure) == ("FAILED", "runner.protocol")
        assert str(limit) in failed.run.failure.message
    # The SDK does not even send it.
    assert outcomes["reply"].status == "FAILED"
    assert str(MIB) in outcomes["reply"].run.failure.message
    assert (waited.status, waited.text) == ("COMPLETED", "before after")
    assert waited.run.instance_id == after.run.instance_id


async def test_event_that_is_too_large_is_refused_and_its_connection_goes_on() -> None:
    runner = Talks()
    async with RealHost(runner, manifest=ACME) as host:
        request = gateway_pb2.DispatchRequest(event=host.event("wait"))
        call = host.gateway.Dispatch(request, metadata=host.metadata)
        responses: list[Any] = [await call.read()]
        refusals = [
            await refused(host.dispatch("x" * (6 * MIB))),
            await refused(host.dispatch("x", data_json=f'"{"x" * (6 * MIB)}"')),
            await refused(host.submit("x" * (6 * MIB))),
        ]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await host.dispatch("x" * (17 * MIB))
        runner.go.set()
        while (response := await call.read()) is not grpc.aio.EOF:
            responses.append(response)

    for refusal in refusals:
        assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE")
        assert int(refusal.facts["size"]) > int(refusal.facts["limit"]) == 2 * MIB
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert responses[0].HasField("accepted")
    assert responses[-1].ended.status == gateway_pb2.RUN_STATUS_COMPLETED


@agent_runner
async def streams_much(ctx: RunContext) -> AsyncIterator[Result]:
    """Makes one message of 9 MiB, more than a client of gRPC takes that was not told to."""
    for _ in range(90):
        yield ctx.delta("大" * 33_000)


async def test_long_message_costs_a_client_that_does_not_take_it_one_call() -> None:
    async with (
        RealHost(streams_much, manifest=ACME) as host,
        grpc.aio.insecure_channel(host.address, options=PLAIN) as channel,
    ):
        outcome = await host.dispatch("much")
        plain = GatewayServiceStub(channel)
        watch = gateway_pb2.WatchRunRequest(run_id=outcome.run.run_id)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [response async for response in plain.WatchRun(watch, metadata=host.metadata)]
        get = gateway_pb2.GetRunRequest(run_id=outcome.run.run_id)
        told = await plain.GetRun(get, metadata=host.metadata)
        # What came after that message can be had all the same.
        watch.after_sequence = outcome.results[-2].sequence
        rest = [response async for response in plain.WatchRun(watch, metadata=host.metadata)]

    assert outcome.status == "COMPLETED"
    assert outcome.text == outcome.streamed_text == "大" * 33_000 * 90
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in (caught.value.details() or "")
    assert told.run == outcome.run == rest[-1].ended
