"""The stand-in host: it keeps to the contract, and sees when a runner does not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1.host_api_pb2_grpc import HostAPIServiceStub

from plugins.echo.echo.main import Echo
from runner_sdk import Manifest, Result, RunContext, agent_runner
from runner_sdk.testing import ContractBroken, RunResult, StandInHost, Unchecked, run_once
from tests.unit.runner_sdk.loopback import serving


def test_a_runners_test_needs_neither_async_nor_files_of_its_own() -> None:
    outcome = run_once(Echo(), "hello")

    assert outcome.text == "hello"


def test_a_runner_is_run_once_whatever_its_name() -> None:
    @agent_runner(name="second")
    async def second(ctx: RunContext) -> Result:
        return ctx.reply("here")

    outcome = run_once(second, manifest=Manifest.minimal("acme/test", "default", "second"))

    assert outcome.text == "here"


def test_a_run_can_be_given_answers_of_the_host() -> None:
    @agent_runner
    async def asks(ctx: RunContext) -> Result:
        prompt = await ctx.host.prompt.get()
        return ctx.reply(prompt.fragments[0].text)

    answer = api.GetPromptResponse(fragments=[api.PromptFragment(source="test", text="be kind")])
    outcome = run_once(
        asks, "hi", manifest=Manifest.minimal("acme/test"), answers={"GetPrompt": answer}
    )

    assert outcome.text == "be kind"


async def test_defaults_of_the_manifest_are_filled_in(tmp_path: Path) -> None:
    seen: list[Any] = []

    @agent_runner
    async def looks(ctx: RunContext) -> None:
        seen.append(ctx.config)

    (tmp_path / "manifest.yaml").write_text(
        "{ apiVersion: runmesh/v1, kind: Plugin, components: [r.yaml],"
        " metadata: { author: acme, name: test, version: '1' } }"
    )
    (tmp_path / "r.yaml").write_text(
        "{ apiVersion: runmesh/v1, kind: AgentRunner, metadata: { name: default, label: R },"
        " config_schema: [{ name: a, type: integer, label: A, default: 9007199254740993 },"
        " { name: b, type: text, label: B }] }"
    )
    async with StandInHost(looks, manifest=tmp_path) as host:
        await host.run("hi", config={"b": "given"})
        with pytest.raises(ValueError, match="config: 'c' is no field of plugin:acme/test/default"):
            host.start("hi", config={"c": 1})
        with pytest.raises(ValueError, match="runner: 'other' is none of default"):
            host.start("hi", runner="other")

    assert seen == [{"a": 9007199254740993, "b": "given"}]


def _numbered(run_id: str, *sequences: int, end: int | None = None) -> Unchecked:
    results = []
    for sequence in sequences:
        result = RunResult(run_id=run_id, sequence=sequence)
        result.message_delta.text = "x"
        results.append(result)
    if end is not None:
        result = RunResult(run_id=run_id, sequence=end)
        result.run_completed.finish_reason = "stop"
        results.insert(end - 1, result)
    return Unchecked(tuple(results))


@pytest.mark.parametrize(
    ("breach", "said"),
    [
        (lambda run_id: _numbered(run_id, 1, 1), "result 2 has the sequence 1"),
        (lambda run_id: _numbered(run_id, 1, 3), "result 2 has the sequence 3"),
        (lambda _: _numbered("other", 1), "result 1 names the run 'other'"),
        (lambda run_id: _numbered(run_id, 1), "ended without a terminal result"),
        (lambda _: Unchecked(), "ended without a terminal result"),
        (lambda run_id: _numbered(run_id, 2, end=1), "result 2 follows the terminal result"),
        (
            lambda run_id: Unchecked((RunResult(run_id=run_id, sequence=1),)),
            "result 1 has no payload",
        ),
    ],
    ids=["duplicate", "gap", "run", "no end", "nothing", "after the end", "no payload"],
)
async def test_each_breach_of_the_contract_is_named(breach: Any, said: str) -> None:
    @agent_runner
    async def breaks(ctx: RunContext) -> AsyncIterator[Any]:
        yield breach(ctx.run_id)

    async with serving(breaks) as host:
        with pytest.raises(ContractBroken, match=said):
            await host.run("hi")


async def test_a_result_over_the_limit_is_a_breach() -> None:
    @agent_runner
    async def breaks(ctx: RunContext) -> AsyncIterator[Any]:
        result = RunResult(run_id=ctx.run_id, sequence=1)
        result.message_delta.text = "x" * 1_100_000
        yield Unchecked((result,))

    async with serving(breaks) as host:
        with pytest.raises(ContractBroken, match="result 1 has 1100"):
            await host.run("hi")


@pytest.mark.parametrize("missing", ["authorization", "runmesh-instance", ""])
async def test_a_call_without_both_tokens_is_refused(missing: str) -> None:
    ready, goes_on = asyncio.Event(), asyncio.Event()
    kept: list[RunContext] = []

    @agent_runner
    async def waits(ctx: RunContext) -> None:
        kept.append(ctx)
        ready.set()
        await goes_on.wait()

    async with serving(waits) as host:
        host.answer("GetPrompt", api.GetPromptResponse())
        reader = asyncio.create_task(host.run("hi"))
        await ready.wait()
        access = kept[0].host._calls.access
        tokens = {
            "authorization": f"Bearer {access.run_token}",
            "runmesh-instance": access.instance_token,
        }
        sent = tuple((key, value) for key, value in tokens.items() if key != missing)
        async with aio.insecure_channel(access.address) as channel:
            call = HostAPIServiceStub(channel).GetPrompt(api.GetPromptRequest(), metadata=sent)
            if missing:
                with pytest.raises(aio.AioRpcError) as caught:
                    await call
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            else:
                await call
        goes_on.set()
        await reader


async def test_results_can_be_read_one_by_one_and_then_to_the_end() -> None:
    async with StandInHost(Echo()) as host:
        call = host.start("one two")
        first = await anext(call)
        outcome = await call.outcome()

    assert first.message_delta.text == "one "
    assert outcome.results[0] == first
    assert outcome.streamed_text == "one two"


async def test_an_answer_to_a_call_there_is_not_is_refused() -> None:
    async with StandInHost(Echo()) as host:
        with pytest.raises(ValueError, match="HostAPIService has no call 'GetPromt'"):
            host.answer("GetPromt", api.GetPromptResponse())


async def test_an_upload_is_answered_with_all_of_its_parts() -> None:
    @agent_runner
    async def uploads(ctx: RunContext) -> Result:
        access = ctx.host._calls.access
        metadata = (
            ("authorization", f"Bearer {access.run_token}"),
            ("runmesh-instance", access.instance_token),
        )
        parts = [api.CreateArtifactRequest(chunk=data) for data in (b"ab", b"cd")]
        async with aio.insecure_channel(access.address) as channel:
            stub = HostAPIServiceStub(channel)
            response = await stub.CreateArtifact(iter(parts), metadata=metadata)
        return ctx.reply(response.artifact.artifact_id)

    def store(requests: list[api.CreateArtifactRequest]) -> api.CreateArtifactResponse:
        response = api.CreateArtifactResponse()
        response.artifact.artifact_id = b"".join(part.chunk for part in requests).decode()
        return response

    async with serving(uploads) as host:
        host.answer("CreateArtifact", store)
        assert (await host.run("hi")).text == "abcd"
