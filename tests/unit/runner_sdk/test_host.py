"""Calls to the host: what goes with each of them, and what comes back when one fails."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc.aio import AioRpcError
from runmesh.v1 import host_api_pb2 as api

from runner_sdk import HostCallError, Result, RunContext, agent_runner, errors
from runner_sdk._host.calls import REPEATABLE
from runner_sdk._listen import is_private
from runner_sdk._status import refusal
from tests.unit.runner_sdk.loopback import a_host_api, a_run, serving


@agent_runner
async def asks_for_the_prompt(ctx: RunContext) -> Result:
    response = await ctx.host.prompt.get()
    return ctx.reply(response.fragments[0].text)


def _prompt(text: str) -> api.GetPromptResponse:
    return api.GetPromptResponse(fragments=[api.PromptFragment(source="test", text=text)])


async def test_both_tokens_and_the_deadline_go_with_every_call() -> None:
    async with serving(asks_for_the_prompt) as host:
        host.answer("GetPrompt", _prompt("be kind"))
        outcome = await host.run("hi", timeout_seconds=20)
        [call] = host.calls

    assert outcome.text == "be kind"
    assert (call.method, call.run_id) == ("GetPrompt", outcome.run_id)
    assert 0 < (call.remaining_seconds or 0) < 20.5


async def test_a_run_without_a_deadline_calls_without_one() -> None:
    async with serving(asks_for_the_prompt) as host:
        host.answer("GetPrompt", _prompt("be kind"))
        await host.run("hi", timeout_seconds=None)
        [call] = host.calls

    assert call.remaining_seconds is None


async def test_each_run_calls_with_its_own_token() -> None:
    async with serving(asks_for_the_prompt) as host:
        host.answer("GetPrompt", _prompt("be kind"))
        outcomes = await asyncio.gather(*(host.run("hi") for _ in range(8)))
        calls = host.calls

    assert {call.run_id for call in calls} == {outcome.run_id for outcome in outcomes}


async def test_a_call_after_the_runs_end_is_refused() -> None:
    kept: list[RunContext] = []

    @agent_runner
    async def keeps(ctx: RunContext) -> None:
        kept.append(ctx)

    async with serving(keeps) as host:
        host.answer("GetPrompt", _prompt("be kind"))
        await host.run("hi")
        with pytest.raises(errors.Unauthenticated):
            await kept[0].host.prompt.get()


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("UNAUTHORIZED", errors.Unauthorized),
        ("NOT_FOUND", errors.NotFound),
        ("INVALID_ARGUMENT", errors.InvalidArgument),
        ("PAYLOAD_TOO_LARGE", errors.PayloadTooLarge),
        ("RATE_LIMITED", errors.RateLimited),
        ("OVERLOADED", errors.Overloaded),
        ("CONFLICT", errors.Conflict),
        ("ALREADY_EXISTS", errors.AlreadyExists),
        ("SEQUENCE_COMPACTED", errors.PastRetention),
        ("DEADLINE_EXCEEDED", errors.DeadlineExceeded),
        ("NOT_IMPLEMENTED", errors.NotImplementedByHost),
        ("UNAVAILABLE", errors.HostUnavailable),
        ("RUNTIME_ERROR", errors.RuntimeFailure),
        ("SOMETHING_NEWER", HostCallError),
    ],
)
async def test_a_refusal_is_an_exception_of_its_reason(
    reason: str, kind: type[HostCallError]
) -> None:
    caught: list[HostCallError] = []

    @agent_runner
    async def tries(ctx: RunContext) -> None:
        try:
            await ctx.host.prompt.get()
        except HostCallError as error:
            caught.append(error)

    refusal = HostCallError(
        method="GetPrompt",
        reason=reason,
        message="because",
        metadata={"limit": "7"},
        violations=(errors.FieldViolation("key", "must be short"),),
        retry_after_seconds=15.0,
    )
    async with serving(tries) as host:
        host.answer("GetPrompt", refusal)
        await host.run("hi")

    [error] = caught
    assert type(error) is kind
    assert (error.method, error.reason, error.message) == ("GetPrompt", reason, "because")
    assert error.metadata == {"limit": "7"}
    assert error.violations == (errors.FieldViolation("key", "must be short"),)
    assert error.retry_after_seconds == 15.0


async def test_a_host_that_is_gone_is_unavailable() -> None:
    caught: list[HostCallError] = []

    @agent_runner
    async def tries(ctx: RunContext) -> None:
        try:
            await ctx.host.prompt.get()
        except HostCallError as error:
            caught.append(error)

    async with serving(tries) as host:
        host._api_address = "127.0.0.1:1"
        await host.run("hi")

    assert type(caught[0]) is errors.HostUnavailable


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("203.0.113.1:50051", "would travel in the clear"),
        ("", "is to be started with --advertise HOST:PORT"),
    ],
)
async def test_an_address_that_no_call_can_be_made_to_is_told_with_what_to_do(
    address: str, told: str
) -> None:
    caught: list[HostCallError] = []

    @agent_runner
    async def tries(ctx: RunContext) -> None:
        try:
            await ctx.host.prompt.get()
        except HostCallError as error:
            caught.append(error)

    async with serving(tries) as host:
        host._api_address = address
        await host.run("hi")

    assert type(caught[0]) is errors.HostUnavailable
    assert told in caught[0].message


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("unix:/tmp/x.sock", True),
        ("127.0.0.1:1", True),
        ("127.8.9.10:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("ipv4:127.0.0.1:1", True),
        ("dns:///localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("192.0.2.1:1", False),
        ("example.org:1", False),
        ("dns:///runners.prod:7443", False),
        ("127.0.0.1", False),
        ("unix-abstract:name", False),
        (":1", False),
        ("", False),
    ],
)
def test_only_this_machine_is_private(address: str, private: bool) -> None:
    assert is_private(address) is private


async def test_a_deadline_ends_a_call() -> None:
    async def never(_: Any) -> None:
        await asyncio.Event().wait()

    ended: list[BaseException] = []

    @agent_runner
    async def tries(ctx: RunContext) -> None:
        try:
            await ctx.host.prompt.get()
        except BaseException as error:
            ended.append(error)
            raise

    async with serving(tries) as host:
        host.answer("GetPrompt", never)
        with contextlib.suppress(AioRpcError):
            await host.run("hi", timeout_seconds=0.1)
        await host.server.drain(2)

    assert isinstance(ended[0], asyncio.CancelledError | errors.DeadlineExceeded)


async def test_any_call_can_be_made_by_name() -> None:
    @agent_runner
    async def asks(ctx: RunContext) -> AsyncIterator[Result]:
        event = await ctx.host.call("GetEvent", api.GetEventRequest(event_id="e1"))
        yield ctx.delta(event.event.type)
        async for chunk in ctx.host.stream(
            "StreamArtifact", api.StreamArtifactRequest(artifact_id="a1")
        ):
            yield ctx.delta(chunk.data.decode())

    async with serving(asks) as host:
        event = api.GetEventResponse()
        event.event.type = "x.y "
        host.answer("GetEvent", event)
        chunks = [api.StreamArtifactResponse(data=data) for data in (b"ab", b"cd")]
        host.answer("StreamArtifact", list(chunks))
        outcome = await host.run("hi")

    assert outcome.text == "x.y abcd"


async def test_a_refused_stream_is_an_exception_too() -> None:
    @agent_runner
    async def asks(ctx: RunContext) -> None:
        async for _ in ctx.host.stream("StreamArtifact", api.StreamArtifactRequest()):
            pass

    async with serving(asks) as host:
        outcome = await host.run("hi")

    assert outcome.failed is not None
    assert outcome.failed.message.startswith("InvalidArgument: StreamArtifact: INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("method", "hint"),
    [
        ("GetPromt", "HostAPIService has no call 'GetPromt'; it has InvokeModel"),
        ("StreamModel", "StreamModel is answered by a stream: use stream()"),
        ("CreateArtifact", "CreateArtifact takes a stream"),
    ],
)
async def test_a_call_that_there_is_not_is_named(method: str, hint: str) -> None:
    @agent_runner
    async def asks(ctx: RunContext) -> None:
        await ctx.host.call(method, api.GetPromptRequest())

    async with serving(asks) as host:
        outcome = await host.run("hi")

    assert outcome.failed is not None
    assert hint in outcome.failed.message


async def test_all_calls_to_one_host_share_a_connection() -> None:
    async with serving(asks_for_the_prompt) as host:
        host.answer("GetPrompt", _prompt("be kind"))
        await host.run("hi")
        channels = dict(host.server._channels._channels)
        await host.run("hi")
        assert host.server._channels._channels == channels
        assert len(channels) == 1


def _too_fast(retry_after_seconds: float | None) -> HostCallError:
    return errors.RateLimited(
        method="",
        reason="RATE_LIMITED",
        message="too fast",
        retry_after_seconds=retry_after_seconds,
    )


def _refusing(times: int, refusal: HostCallError, answer: Any) -> Any:
    """Answers so many calls with a refusal, and the others well."""
    left = itertools.count(times, -1)
    return lambda _: refusal if next(left) > 0 else answer


async def test_a_repeatable_call_that_comes_too_fast_waits_as_the_host_says() -> None:
    async with a_run() as (host, ctx):
        host.answer("GetPrompt", _refusing(2, _too_fast(0.02), _prompt("at last")))
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = await ctx.host.prompt.get()

        assert response.fragments[0].text == "at last"
        assert loop.time() - began >= 0.04
        assert len(host.calls) == 3


async def test_a_repeatable_stream_that_comes_too_fast_begins_again() -> None:
    chunks = [api.StreamArtifactResponse(data=b"ab")]
    async with a_run() as (host, ctx):
        host.answer("StreamArtifact", _refusing(2, _too_fast(0.01), chunks))
        request = api.StreamArtifactRequest(artifact_id="a")
        stream = ctx.host.stream("StreamArtifact", request)
        assert [chunk.data async for chunk in stream] == [b"ab"]


@pytest.mark.parametrize(
    ("refusal", "circumstances"),
    [
        (_too_fast(None), {}),
        (_too_fast(11.0), {}),
        (_too_fast(9.0), {"timeout_seconds": 5}),
        (
            errors.Overloaded(method="", reason="OVERLOADED", message="", retry_after_seconds=0.01),
            {},
        ),
        (errors.HostUnavailable(method="", reason="UNAVAILABLE", message=""), {}),
    ],
    ids=["no time told", "beyond patience", "beyond the deadline", "overloaded", "away"],
)
async def test_what_waiting_cannot_help_is_told_at_once(
    refusal: HostCallError, circumstances: dict[str, Any]
) -> None:
    async with a_run(**circumstances) as (host, ctx):
        host.answer("GetPrompt", refusal)
        with pytest.raises(type(refusal)):
            await asyncio.wait_for(ctx.host.prompt.get(), 2)
        assert len(host.calls) == 1


async def test_a_call_that_must_not_be_repeated_is_not() -> None:
    async with a_run() as (host, ctx):
        host.answer("CallTool", _too_fast(0.01))
        with pytest.raises(errors.RateLimited):
            await ctx.host.tools.call("lookup", {})
        assert len(host.calls) == 1


def test_the_calls_that_may_be_repeated_are_those_of_the_contract() -> None:
    text = (Path(__file__).parents[3] / "proto/runmesh/v1/host_api.proto").read_text("utf-8")
    service = text[text.index("service HostAPIService") :]
    said = {
        name: " ".join(line.strip(" /") for line in comment.splitlines())
        for comment, name in re.findall(r"((?: +//[^\n]*\n)+) +rpc (\w+)\(", service)
    }

    assert len(said) == len(api.DESCRIPTOR.services_by_name["HostAPIService"].methods)
    repeatable = {name for name, comment in said.items() if "May be repeated" in comment}
    assert repeatable == REPEATABLE
    assert all("Repeating" in said[name] for name in said.keys() - REPEATABLE - {"PullSteering"})


async def test_a_call_may_have_less_time_than_the_run() -> None:
    async def never(_: Any) -> None:
        await asyncio.Event().wait()

    async with a_run() as (host, ctx):
        host.answer("CallTool", never)
        with pytest.raises(errors.DeadlineExceeded):
            await ctx.host.tools.call("lookup", {}, timeout_seconds=0.1)
        assert 0 < (host.calls[0].remaining_seconds or 0) < 0.2


async def test_a_call_never_has_more_time_than_the_run() -> None:
    async with a_run(timeout_seconds=5) as (host, ctx):
        await ctx.host.call("GetPrompt", api.GetPromptRequest(), timeout_seconds=100)
        assert 0 < (host.calls[0].remaining_seconds or 0) < 5.1


async def test_a_streams_call_has_tokens_deadline_and_metadata_too() -> None:
    async with a_run(timeout_seconds=20) as (host, ctx):
        host.answer("StreamArtifact", [api.StreamArtifactResponse(data=b"x")])
        request = api.StreamArtifactRequest(artifact_id="a")
        async for _ in ctx.host.stream("StreamArtifact", request, metadata={"x-run": "7"}):
            pass
        [call] = host.calls

    assert call.run_id == ctx.run_id
    assert call.metadata["x-run"] == "7"
    assert 0 < (call.remaining_seconds or 0) < 20.5


async def test_metadata_of_a_call_arrives_as_grpc_can_carry_it() -> None:
    every_byte = bytes(range(256))
    async with a_run() as (host, ctx):
        await ctx.host.call(
            "GetPrompt",
            api.GetPromptRequest(),
            metadata={"X-Run": "a b~", "x-bin": every_byte, "label-bin": "测试".encode()},
        )
        [call] = host.calls

    assert call.metadata["x-run"] == "a b~"
    assert call.metadata["x-bin"] == every_byte
    assert bytes(call.metadata["label-bin"]).decode() == "测试"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("label", "测试"),
        ("label", "a\nb"),
        ("label", b"raw"),
        ("测试", "x"),
        ("with space", "x"),
        ("", "x"),
        ("x-bin", "text"),
        ("Authorization", "Bearer other"),
        ("runmesh-instance", "other"),
        ("traceparent", "00-0-0-0"),
        ("grpc-timeout", "1S"),
    ],
)
async def test_metadata_that_grpc_cannot_carry_is_refused_by_name(
    name: str, value: str | bytes
) -> None:
    async with a_run() as (host, ctx):
        with pytest.raises(errors.InvalidArgument) as caught:
            await ctx.host.call("GetPrompt", api.GetPromptRequest(), metadata={name: value})
        assert caught.value.violations[0].field == f"metadata[{name!r}]"
        assert host.calls == []
        # The next call is as good as ever.
        await ctx.host.prompt.get()


async def test_a_call_that_is_cut_off_at_the_other_end_is_unavailable() -> None:
    async def cut(_: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.CANCELLED, "stopping")

    async with (
        a_host_api({"GetPrompt": cut, "PullSteering": cut}) as address,
        a_run(address=address) as (_, ctx),
    ):
        with pytest.raises(errors.HostUnavailable, match="stopping"):
            await ctx.host.prompt.get()
        with pytest.raises(errors.HostUnavailable, match="stopping"):
            await anext(ctx.host.stream("PullSteering", api.PullSteeringRequest()))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.OUT_OF_RANGE, errors.PastRetention),
        (grpc.StatusCode.PERMISSION_DENIED, errors.Unauthorized),
        (grpc.StatusCode.DATA_LOSS, errors.RuntimeFailure),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.Overloaded),
    ],
)
async def test_a_status_whose_details_cannot_be_read_is_told_by_its_code(
    code: grpc.StatusCode, kind: type[HostCallError]
) -> None:
    async def garble(_: Any, context: Any) -> None:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff\xff"),))
        await context.abort(code, "because")

    async with a_host_api({"GetPrompt": garble}) as address, a_run(address=address) as (_, ctx):
        with pytest.raises(HostCallError, match="because") as caught:
            await ctx.host.prompt.get()
        assert type(caught.value) is kind


async def test_a_message_over_the_transports_limit_costs_its_own_call_alone() -> None:
    async with a_run() as (host, ctx):
        with pytest.raises(errors.PayloadTooLarge):
            await ctx.host.storage.set("plugin", "k", b"x" * (17 << 20))
        host.answer("GetStorage", api.GetStorageResponse(value=b"x" * (17 << 20)))
        with pytest.raises(errors.PayloadTooLarge):
            await ctx.host.storage.get("plugin", "k")
        await ctx.host.prompt.get()


async def test_a_stream_that_is_left_early_is_over_for_the_host() -> None:
    ended = asyncio.Event()

    async def endless(_: Any, context: Any) -> None:
        try:
            while True:
                await context.write(api.StreamArtifactResponse(data=b"x" * 1000))
        finally:
            ended.set()

    request = api.StreamArtifactRequest(artifact_id="a")
    async with (
        a_host_api({"StreamArtifact": endless}) as address,
        a_run(address=address) as (_, ctx),
    ):
        async with ctx.host.stream("StreamArtifact", request) as stream:
            await anext(stream)
        await asyncio.wait_for(ended.wait(), 2)
        assert [chunk async for chunk in stream] == []

        ended.clear()
        async for _ in ctx.host.stream("StreamArtifact", request):
            break
        await asyncio.wait_for(ended.wait(), 2)


async def test_a_stream_that_has_begun_is_never_begun_again() -> None:
    begun = 0
    too_fast = refusal(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED", "too fast", retry_after_seconds=0.01
    )

    async def breaks(_: Any, context: Any) -> None:
        nonlocal begun
        begun += 1
        await context.write(api.StreamArtifactResponse(data=b"x"))
        await context.abort_with_status(too_fast)

    async with (
        a_host_api({"StreamArtifact": breaks}) as address,
        a_run(address=address) as (_, ctx),
    ):
        stream = ctx.host.stream("StreamArtifact", api.StreamArtifactRequest(artifact_id="a"))
        assert (await anext(stream)).data == b"x"
        with pytest.raises(errors.RateLimited):
            await anext(stream)

    assert begun == 1


async def test_a_stream_is_read_no_faster_than_it_is_iterated_over() -> None:
    written = 0

    async def endless(_: Any, context: Any) -> None:
        nonlocal written
        while True:
            await context.write(api.StreamArtifactResponse(data=b"x" * (1 << 20)))
            written += 1

    async with (
        a_host_api({"StreamArtifact": endless}) as address,
        a_run(address=address) as (_, ctx),
    ):
        request = api.StreamArtifactRequest(artifact_id="a")
        async with ctx.host.stream("StreamArtifact", request) as stream:
            await anext(stream)
            await asyncio.sleep(0.3)
            assert written < 20


async def test_streams_that_are_left_early_leave_nothing_behind() -> None:
    serving_now = 0

    async def endless(_: Any, context: Any) -> None:
        nonlocal serving_now
        serving_now += 1
        try:
            while True:
                await context.write(api.StreamArtifactResponse(data=b"x" * 1000))
        finally:
            serving_now -= 1

    request = api.StreamArtifactRequest(artifact_id="a")
    async with (
        a_host_api({"StreamArtifact": endless}) as address,
        a_run(address=address) as (_, ctx),
    ):
        await anext(ctx.host.stream("StreamArtifact", request))
        before = len(asyncio.all_tasks())
        for number in range(200):
            stream = ctx.host.stream("StreamArtifact", request)
            await anext(stream)
            if number % 2:
                await stream.aclose()
            del stream
        async with asyncio.timeout(2):
            while serving_now or len(asyncio.all_tasks()) > before:  # noqa: ASYNC110 - gRPC has no event for it
                await asyncio.sleep(0.01)
