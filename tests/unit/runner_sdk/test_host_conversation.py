"""History, events and the prompt, as runners use them."""

from typing import Any

import pytest
from runmesh.v1 import event_pb2, types_pb2
from runmesh.v1 import host_api_pb2 as api

from runner_sdk import errors
from runner_sdk.messages import transcript_message
from runner_sdk.testing import StandInHost
from tests.unit.runner_sdk.loopback import a_run


def _history_page(request: api.PageHistoryRequest) -> api.PageHistoryResponse:
    number = int(request.page_token or 0)
    items = [
        api.TranscriptItem(transcript_id=f"{number}{n}", role=types_pb2.CHAT_ROLE_USER)
        for n in range(request.page_size)
    ]
    return api.PageHistoryResponse(items=items, next_page_token=str(number + 1))


async def test_iterating_history_fetches_a_page_only_when_one_is_used_up() -> None:
    ids: list[str] = []
    async with a_run() as (host, ctx):
        host.answer("PageHistory", _history_page)
        items = ctx.host.history.iterate(
            page_size=2, after="c0", direction="oldest_first", include_artifacts=True
        )
        async for item in items:
            ids.append(item.transcript_id)
            if len(ids) == 4:
                break
        requests = [call.request for call in host.calls]

    assert ids == ["00", "01", "10", "11"]
    assert [request.page_token for request in requests] == ["", "1"]
    assert {request.after for request in requests} == {"c0"}
    assert {request.direction for request in requests} == {api.PAGE_DIRECTION_OLDEST_FIRST}
    assert all(request.include_artifacts for request in requests)


def _talk(host: StandInHost) -> None:
    host.add_history(*((("user", "assistant")[n % 2], f"tea {n}") for n in range(7)))


async def test_history_is_what_came_before_the_runs_own_event() -> None:
    async with a_run(_talk) as (host, ctx):
        newest = [item.text async for item in ctx.host.history.iterate(page_size=3)]
        oldest = [item.text async for item in ctx.host.history.iterate(direction="oldest_first")]
        assert host.history[-1].text == "hi"

    assert oldest == [f"tea {n}" for n in range(7)]
    assert newest == oldest[::-1]


async def test_a_page_of_history_lies_between_cursors() -> None:
    async with a_run(_talk) as (_, ctx):
        page = await ctx.host.history.page(page_size=7)
        cursors = {item.text: item.cursor for item in page.items}
        between = await ctx.host.history.page(
            at_or_before=cursors["tea 5"], after=cursors["tea 2"], direction="oldest_first"
        )
        with pytest.raises(errors.NotFound):
            await ctx.host.history.page(at_or_before="of another conversation")

    assert [item.text for item in between.items] == ["tea 3", "tea 4", "tea 5"]
    assert between.next_page_token == ""


async def test_a_page_token_is_good_for_its_own_query_alone() -> None:
    async with a_run(_talk) as (_, ctx):
        page = await ctx.host.history.page(page_size=2)
        rest = await ctx.host.history.page(page_size=4, page_token=page.next_page_token)
        assert [item.text for item in rest.items] == ["tea 4", "tea 3", "tea 2", "tea 1"]
        with pytest.raises(errors.InvalidArgument, match="page_token"):
            await ctx.host.history.page(direction="oldest_first", page_token=page.next_page_token)
        with pytest.raises(errors.InvalidArgument, match="page_token"):
            await ctx.host.history.page(page_token="made up")


async def test_a_search_goes_over_as_many_pages_as_it_takes() -> None:
    def much_tea(host: StandInHost) -> None:
        host.add_history(*(f"tea pot {n}" for n in range(120)), "coffee", "a pot")

    async with a_run(much_tea) as (host, ctx):
        history = ctx.host.history
        assert [item.text for item in await history.search("POT tea", limit=2)] == [
            "tea pot 119",
            "tea pot 118",
        ]
        assert len(await history.search("tea", limit=101)) == 101
        assert len(await history.search("tea", limit=1000)) == 120
        assert await history.search("tea", limit=0) == []
        assert await history.search("tea coffee") == []
        sizes = [call.request.page_size for call in host.calls]
        page = await history.search_page("tea", page_size=50)
        assert len([item async for item in history.iterate_search("tea")]) == 120

    assert sizes == [2, *[50] * 3, *[50] * 3, 10]
    assert page.next_page_token


async def test_another_conversation_is_refused_without_a_policy() -> None:
    async with a_run(_talk) as (host, ctx):
        with pytest.raises(errors.Unauthorized):
            await ctx.host.history.page(conversation_id="elsewhere")
        with pytest.raises(errors.Unauthorized):
            await ctx.host.history.page(thread_id="other")
        own = await ctx.host.history.page(conversation_id="conversation", thread_id="")
        assert host.calls[-1].request.HasField("thread_id")

    assert len(own.items) == 7


async def test_artifacts_of_history_come_when_they_are_asked_for() -> None:
    ref = types_pb2.ArtifactRef(artifact_id="a", type="image")
    item = api.TranscriptItem(role=types_pb2.CHAT_ROLE_USER, text="see", artifacts=[ref])
    async with a_run(lambda host: host.add_history(item)) as (_, ctx):
        [bare] = (await ctx.host.history.page()).items
        [full] = (await ctx.host.history.page(include_artifacts=True)).items

    assert (len(bare.artifacts), full.artifacts[0].artifact_id) == (0, "a")


async def test_a_long_text_in_history_is_its_beginning_and_an_artifact() -> None:
    whole = "世" * 100_000
    async with a_run(lambda host: host.add_history(whole)) as (_, ctx):
        [item] = (await ctx.host.history.page()).items
        async with ctx.host.artifacts.open(item.artifacts[0]) as file:
            assert (await file.read()).decode() == whole

    assert item.truncated
    assert whole.startswith(item.text)
    assert len(item.text.encode()) <= 256 * 1024


async def test_events_of_the_conversation_are_read_and_paged() -> None:
    def more_events(host: StandInHost) -> None:
        for n in range(5):
            host.add_event(event_pb2.EventEnvelope(event_id=f"e{n}", type="message.recalled"))
        host.add_event(
            event_pb2.EventEnvelope(event_id="x", type="a.b", conversation_id="elsewhere")
        )

    async with a_run(more_events, event_type="message.received") as (_, ctx):
        events = ctx.host.events
        own = await events.get(ctx.event.event_id)
        all_of_them = [event.event_id async for event in events.iterate(page_size=2)]
        recalled = [
            event.event_id
            async for event in events.iterate(
                types=["message.recalled"], direction="oldest_first", page_size=2
            )
        ]
        page = await events.page(types=iter(["message.recalled"]), page_size=1)
        assert (await events.get("e1", source="api")).type == "message.recalled"
        for event_id, source in [("x", None), ("e1", "platform"), ("nowhere", None)]:
            with pytest.raises(errors.NotFound):
                await events.get(event_id, source=source)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="source: 'email' is none of platform, webui"):
            await events.get("e1", source="email")  # type: ignore[arg-type]

    assert (own.type, own.input.text, own.actor.id) == ("message.received", "hi", "user")
    assert all_of_them == [ctx.event.event_id, "e4", "e3", "e2", "e1", "e0"]
    assert recalled == [f"e{n}" for n in range(5)]
    assert page.events[0].event_id == "e4"


async def test_a_direction_that_there_is_not_is_named() -> None:
    async with a_run() as (_, ctx):
        with pytest.raises(ValueError, match="direction: 'upwards' is none of newest_first"):
            await ctx.host.history.page(direction="upwards")  # type: ignore[arg-type]


async def test_the_prompt_is_read_with_its_fragments() -> None:
    def instruct(host: StandInHost) -> None:
        host.set_prompt("Be kind.", ("user", "example"), fragments={"workspace": "No names."})

    async with a_run(instruct) as (_, ctx):
        prompt = await ctx.host.prompt.get()

    assert [(message.role, message.parts[0].text) for message in prompt.messages] == [
        (types_pb2.CHAT_ROLE_SYSTEM, "Be kind."),
        (types_pb2.CHAT_ROLE_USER, "example"),
    ]
    assert [(part.source, part.text) for part in prompt.fragments] == [("workspace", "No names.")]


async def test_items_of_a_later_host_keep_what_is_not_known_here() -> None:
    item = api.TranscriptItem(transcript_id="t", text="x")
    item.MergeFromString(b"\x38\x63\x40\x63\xfa\x01\x01x")  # role 99, kind 99, and field 31
    seen: list[Any] = []
    async with a_run() as (host, ctx):
        host.answer("PageHistory", api.PageHistoryResponse(items=[item]))
        seen.extend([entry async for entry in ctx.host.history.iterate()])

    assert (seen[0].role, seen[0].kind) == (99, 99)
    assert seen[0].SerializeToString() == item.SerializeToString()
    assert transcript_message(seen[0]).role == 99
