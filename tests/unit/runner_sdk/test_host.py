"""Calls to the host: what goes with each of them, and what comes back when one fails."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from grpc.aio import AioRpcError
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import result_pb2, types_pb2

from runner_sdk import HostCallError, Result, RunContext, agent_runner, errors
from runner_sdk._listen import is_private
from runner_sdk.host import StateValue
from tests.unit.runner_sdk.loopback import serving


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
    assert 0 < (call.remaining_seconds or 0) <= 20


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


async def test_a_call_that_the_host_does_not_offer_is_not_implemented() -> None:
    async with serving(asks_for_the_prompt) as host:
        outcome = await host.run("hi")

    assert outcome.failed is not None
    assert outcome.failed.message.startswith("NotImplementedByHost: GetPrompt: NOT_IMPLEMENTED")


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


async def test_tokens_are_not_sent_to_another_machine_in_the_clear() -> None:
    caught: list[HostCallError] = []

    @agent_runner
    async def tries(ctx: RunContext) -> None:
        try:
            await ctx.host.prompt.get()
        except HostCallError as error:
            caught.append(error)

    async with serving(tries) as host:
        host._api_address = "203.0.113.1:50051"
        await host.run("hi")

    assert type(caught[0]) is errors.HostUnavailable
    assert "would travel in the clear" in caught[0].message


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


async def test_state_is_read_and_written_with_versions() -> None:
    seen: list[Any] = []

    @agent_runner
    async def counts(ctx: RunContext) -> None:
        state = ctx.host.state
        seen.append(await state.get("actor", "count"))
        seen.append(await state.set("actor", "count", {"n": 9007199254740993}, expected_version=4))
        seen.append(await state.delete("actor", "old"))

    async with serving(counts) as host:
        entry = api.StateEntry(key="count", value_json="9007199254740993", version=4)
        host.answer("GetState", api.GetStateResponse(entry=entry))
        host.answer("SetState", api.SetStateResponse(version=5))
        host.answer("DeleteState", api.DeleteStateResponse(existed=True))
        await host.run("hi")
        requests = [call.request for call in host.calls]

    assert seen == [StateValue("count", 9007199254740993, 4), 5, True]
    assert requests[0].scope == result_pb2.STATE_SCOPE_ACTOR
    assert requests[1].value_json == '{"n":9007199254740993}'
    assert requests[1].expected_version == 4
    assert not requests[2].HasField("expected_version")


async def test_listing_state_goes_through_all_pages() -> None:
    keys: list[str] = []

    @agent_runner
    async def lists(ctx: RunContext) -> None:
        values = ctx.host.state.iterate("runner", prefix="k")
        keys.extend([value.key async for value in values])

    def page(request: api.ListStateRequest) -> api.ListStateResponse:
        assert request.prefix == "k"
        number = int(request.page_token or 0)
        entries = [api.StateEntry(key=f"k{number}{n}", value_json="1", version=1) for n in (0, 1)]
        token = str(number + 1) if number < 2 else ""
        return api.ListStateResponse(entries=entries, next_page_token=token)

    async with serving(lists) as host:
        host.answer("ListState", page)
        await host.run("hi")

    assert keys == ["k00", "k01", "k10", "k11", "k20", "k21"]


def _history_page(request: api.PageHistoryRequest) -> api.PageHistoryResponse:
    number = int(request.page_token or 0)
    items = [
        api.TranscriptItem(transcript_id=f"{number}{n}", role=types_pb2.CHAT_ROLE_USER)
        for n in range(request.page_size)
    ]
    return api.PageHistoryResponse(items=items, next_page_token=str(number + 1))


async def test_iterating_history_fetches_a_page_only_when_one_is_used_up() -> None:
    ids: list[str] = []

    @agent_runner
    async def reads(ctx: RunContext) -> None:
        items = ctx.host.history.iterate(
            page_size=2, after="c0", direction="oldest_first", include_artifacts=True
        )
        async for item in items:
            ids.append(item.transcript_id)
            if len(ids) == 4:
                break

    async with serving(reads) as host:
        host.answer("PageHistory", _history_page)
        await host.run("hi")
        requests = [call.request for call in host.calls]

    assert ids == ["00", "01", "10", "11"]
    assert [request.page_token for request in requests] == ["", "1"]
    assert {request.after for request in requests} == {"c0"}
    assert {request.direction for request in requests} == {api.PAGE_DIRECTION_OLDEST_FIRST}
    assert all(request.include_artifacts for request in requests)


async def test_history_is_paged_and_searched() -> None:
    seen: list[Any] = []

    @agent_runner
    async def reads(ctx: RunContext) -> None:
        page = await ctx.host.history.page(page_size=3)
        seen.append((len(page.items), page.next_page_token))
        seen.append([item.text for item in await ctx.host.history.search("tea pot", limit=7)])

    async with serving(reads) as host:
        host.answer("PageHistory", _history_page)
        found = api.SearchHistoryResponse(items=[api.TranscriptItem(text="a tea pot")])
        host.answer("SearchHistory", found)
        await host.run("hi")
        search = host.calls[1].request

    assert seen == [(3, "1"), ["a tea pot"]]
    assert (search.query, search.page_size) == ("tea pot", 7)


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
    assert outcome.failed.message.startswith("NotImplementedByHost: StreamArtifact")


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


async def test_plain_code_can_wait_for_a_call() -> None:
    @agent_runner
    def asks(ctx: RunContext) -> Iterator[Result]:
        yield ctx.reply(ctx.block_on(ctx.host.prompt.get()).fragments[0].text)

    async with serving(asks) as host:
        host.answer("GetPrompt", _prompt("be kind"))
        assert (await host.run("hi")).text == "be kind"


async def test_waiting_in_plain_codes_way_on_the_loop_is_refused() -> None:
    @agent_runner
    async def asks(ctx: RunContext) -> None:
        ctx.block_on(ctx.host.prompt.get())

    async with serving(asks) as host:
        outcome = await host.run("hi")

    assert outcome.failed is not None
    assert "here, use `await`" in outcome.failed.message


async def test_all_calls_to_one_host_share_a_connection() -> None:
    async with serving(asks_for_the_prompt) as host:
        host.answer("GetPrompt", _prompt("be kind"))
        await host.run("hi")
        channels = dict(host.server._channels._channels)
        await host.run("hi")
        assert host.server._channels._channels == channels
        assert len(channels) == 1
