"""State and storage, as runners use them."""

import asyncio

import pytest
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import result_pb2

from runner_sdk import errors
from runner_sdk.host import StateValue
from runner_sdk.testing import StandInHost
from tests.unit.runner_sdk.loopback import a_run


async def test_state_is_read_and_written_with_versions() -> None:
    async with a_run() as (host, ctx):
        state = ctx.host.state
        assert await state.set("actor", "count", {"n": 9007199254740993}) == 1
        assert await state.get("actor", "count") == StateValue("count", {"n": 9007199254740993}, 1)
        assert await state.set("actor", "count", 2, expected_version=1) == 2
        assert await state.delete("actor", "count", expected_version=2)
        assert not await state.delete("actor", "count")
        requests = [call.request for call in host.calls]

    assert requests[0].scope == result_pb2.STATE_SCOPE_ACTOR
    assert requests[0].value_json == '{"n":9007199254740993}'
    assert not requests[0].HasField("expected_version")
    assert requests[2].expected_version == 1


async def test_a_write_over_another_version_is_a_conflict() -> None:
    async with a_run() as (_, ctx):
        state = ctx.host.state
        await state.set("runner", "k", "first", expected_version=0)
        with pytest.raises(errors.Conflict):
            await state.set("runner", "k", "second", expected_version=0)
        with pytest.raises(errors.Conflict):
            await state.delete("runner", "k", expected_version=7)
        assert (await state.get("runner", "k")).value == "first"


async def test_listing_state_goes_through_all_pages() -> None:
    def prepare(host: StandInHost) -> None:
        host.set_state("runner", {f"k{n}": n for n in range(7)} | {"other": None})

    async with a_run(prepare) as (host, ctx):
        keys = [entry.key async for entry in ctx.host.state.iterate("runner", "k", page_size=3)]
        listed = await ctx.host.state.list("runner", "k")
        requests = [call.request for call in host.calls]

    assert keys == [f"k{n}" for n in range(7)]
    assert [entry.value for entry in listed] == list(range(7))
    assert [bool(request.page_token) for request in requests] == [False, True, True, False]


async def test_one_scope_reads_like_a_mapping() -> None:
    async with a_run() as (host, ctx):
        topic = ctx.host.state["conversation"]
        assert await topic.get("topic") is None
        assert await topic.get("topic", "weather") == "weather"
        await topic.set("topic", "tea")
        await topic.set("tone", None)
        assert await topic.get("topic", "weather") == "tea"
        assert await topic.items() == {"tone": None, "topic": "tea"}
        assert await topic.items("to") == {"tone": None, "topic": "tea"}
        assert await topic.items("tone") == {"tone": None}
        assert await topic.delete("topic")
        assert host.state("conversation") == {"tone": None}


async def test_an_unknown_scope_is_named_with_those_there_are() -> None:
    async with a_run() as (_, ctx):
        with pytest.raises(ValueError, match="scope: 'user' is none of conversation, actor"):
            ctx.host.state["user"]  # type: ignore[index]


async def test_updates_of_many_at_once_lose_nothing() -> None:
    async with a_run() as (host, ctx):
        counter = ctx.host.state["runner"]
        changes = (counter.update("count", lambda n: n + 1, default=0) for _ in range(10))
        results = await asyncio.gather(*changes)

        assert sorted(results) == list(range(1, 11))
        assert host.state("runner") == {"count": 10}


async def test_an_update_gives_up_in_the_end() -> None:
    stale = errors.Conflict(method="", reason="CONFLICT", message="stale")
    async with a_run() as (host, ctx):
        host.answer("SetState", stale)
        with pytest.raises(errors.Conflict):
            await ctx.host.state["runner"].update("k", lambda n: n)
        assert sum(call.method == "SetState" for call in host.calls) == 20


async def test_storage_keeps_bytes_by_area() -> None:
    async with a_run() as (host, ctx):
        storage = ctx.host.storage
        await storage.set("plugin", "a", bytes(range(256)))
        await storage.set("workspace", "a", b"")
        assert await storage.get("plugin", "a") == bytes(range(256))
        assert await storage.get("workspace", "a") == b""
        assert await storage.find("binding", "a") is None
        with pytest.raises(errors.NotFound):
            await storage.get("binding", "a")
        assert await storage.delete("plugin", "a")
        assert not await storage.delete("plugin", "a")
        assert host.storage("workspace") == {"a": b""}


async def test_keys_of_storage_are_listed_over_all_pages() -> None:
    async with a_run() as (host, ctx):
        host.set_storage("plugin", {f"k{n}": b"x" * n for n in range(5)} | {"z": b""})
        entries = [entry async for entry in ctx.host.storage.iterate("plugin", "k", page_size=2)]
        listed = await ctx.host.storage.list("plugin")

    assert [(entry.key, entry.size_bytes) for entry in entries] == [(f"k{n}", n) for n in range(5)]
    assert listed[-1].key == "z"
    assert all(entry.HasField("updated_at") for entry in entries)


async def test_an_unknown_area_is_named_with_those_there_are() -> None:
    async with a_run() as (_, ctx):
        with pytest.raises(ValueError, match="area: 'mine' is none of plugin, workspace, binding"):
            await ctx.host.storage.get("mine", "k")  # type: ignore[arg-type]


async def test_what_is_too_large_is_told_with_size_and_limit() -> None:
    async with a_run() as (_, ctx):
        with pytest.raises(errors.PayloadTooLarge) as state:
            await ctx.host.state.set("runner", "k", "x" * (256 * 1024))
        with pytest.raises(errors.PayloadTooLarge) as storage:
            await ctx.host.storage.set("plugin", "k", b"x" * (3 * 1024 * 1024 + 1))

    assert state.value.metadata == {"size": "262146", "limit": "262144"}
    assert storage.value.metadata == {"size": "3145729", "limit": "3145728"}


async def test_a_value_that_json_cannot_hold_is_not_sent() -> None:
    async with a_run() as (host, ctx):
        with pytest.raises(ValueError, match="state runner 'k': not a JSON value"):
            await ctx.host.state.set("runner", "k", float("nan"))
        assert host.calls == []


async def test_a_state_value_that_a_later_host_writes_is_read() -> None:
    entry = api.StateEntry(key="k", value_json="[1]", version=3)
    entry.MergeFromString(b"\xfa\x01\x01x")  # field 31, which nobody knows yet
    async with a_run() as (host, ctx):
        host.answer("GetState", api.GetStateResponse(entry=entry))
        assert await ctx.host.state.get("runner", "k") == StateValue("k", [1], 3)


async def test_a_page_and_a_snapshot_of_state_end_at_two_mebibytes() -> None:
    async with a_run(state={"runner": {f"k{n}": "x" * 250_000 for n in range(10)}}) as (host, ctx):
        assert len(await ctx.host.state.list("runner")) == 10
        assert len(host.calls) == 2
        assert ctx.state.truncated
        assert len(ctx.state.all("runner")) == 8
