"""Tests of `host_service.capabilities.events`: which events a run sees, and in which pages."""

import json
from typing import Any

import pytest
from runmesh.v1 import event_pb2, host_api_pb2, types_pb2

from host_service.errors import InvalidArgument, NotFound, Unauthorized
from stores import Stores
from tests.unit.capabilities.rooms import Room, Run

OLDEST = host_api_pb2.PAGE_DIRECTION_OLDEST_FIRST
FILE = types_pb2.ArtifactRef(artifact_id="a-1", type="file", size_bytes=3)
NOTHING_GRANTED: dict[str, Any] = {"permissions": {"events": frozenset({"get", "page"})}}


@pytest.fixture
def room(stores: Stores) -> Room:
    return Room(stores)


async def page(run: Run, **fields: Any) -> list[str]:
    return [event.event_id for event in (await run.call("PageEvents", **fields)).events]


async def test_event_is_given_as_it_was_logged(room: Room) -> None:
    whole = await room.hears(
        "hello",
        type="message.received",
        source=event_pb2.EVENT_SOURCE_PLATFORM,
        source_event_name="GroupMessage",
        thread_id="topic",
        subject=event_pb2.Subject(type="message", id="m", data_json='{"n": 9223372036854775807}'),
        delivery=event_pb2.DeliveryContext(surface="chat", reply_target_json='{"to": 1}'),
        data_json='{"id": 12345678901234567890}',
        metadata={"k": "v"},
    )
    run = await room.run_of(whole)
    answer = await run.call("GetEvent", event_id=whole.envelope.event_id)
    assert answer.event == whole.envelope
    assert (await run.call("PageEvents")).events == [whole.envelope]


async def test_event_elsewhere_looks_like_one_that_never_was(room: Room) -> None:
    own = await room.hears("own")
    others = [
        await room.hears("x", conversation_id="other"),
        await room.hears("x", thread_id="topic"),
        await room.hears("x", bot_id="another"),
        await room.hears("x", workspace_id="another"),
        await room.hears("x", conversation_id=""),
    ]
    run = await room.run_of(own)
    told = set()
    for event_id in [*(each.envelope.event_id for each in others), "event-never"]:
        with pytest.raises(NotFound) as refused:
            await run.call("GetEvent", event_id=event_id)
        told.add(refused.value.message.replace(event_id, "X"))
    assert len(told) == 1
    assert await page(run) == [own.envelope.event_id]


async def test_source_is_that_of_the_runs_event_unless_it_is_named(room: Room) -> None:
    platform = {"event_id": "1", "source": event_pb2.EVENT_SOURCE_PLATFORM}
    first = await room.hears("by platform", **platform)
    second = await room.hears("by api", event_id="2")
    run = await room.run_of(second)
    with pytest.raises(NotFound):
        await run.call("GetEvent", event_id="1")
    named = await run.call("GetEvent", **platform)
    assert named.event == first.envelope
    assert (await (await room.run_of(first)).call("GetEvent", event_id="1")).event == first.envelope
    with pytest.raises(NotFound):
        await run.call("GetEvent", event_id="2", source=77)


async def test_run_without_a_conversation_sees_its_own_event_alone(room: Room) -> None:
    await room.hears("in a room")
    own = await room.hears(conversation_id="", type="schedule.triggered")
    another = await room.hears(conversation_id="", type="schedule.triggered")
    run = await room.run_of(own)
    assert await page(run) == [own.envelope.event_id]
    assert await page(run, types=["schedule.triggered"]) == [own.envelope.event_id]
    assert await page(run, types=["message.received"]) == []
    answer = await run.call("GetEvent", event_id=own.envelope.event_id)
    assert answer.event == own.envelope
    with pytest.raises(NotFound):
        await run.call("GetEvent", event_id=another.envelope.event_id)


async def test_pages_have_the_types_asked_for_in_the_order_of_arrival(room: Room) -> None:
    kinds = ["message.received", "message.recalled", "group.member_joined", "message.received"]
    events = [await room.hears(type=kind) for kind in kinds]
    ids = [each.envelope.event_id for each in events]
    run = await room.run_of(events[1])
    assert await page(run, direction=OLDEST) == ids
    assert await page(run) == ids[::-1]
    assert await page(run, types=["message.received"]) == [ids[3], ids[0]]
    assert await page(run, types=["group.member_joined", "message.recalled"]) == [ids[2], ids[1]]
    assert await page(run, types=["message"]) == []
    for types in ([""], ["x" * 101], [f"t.{number}" for number in range(101)]):
        with pytest.raises(InvalidArgument, match="types"):
            await page(run, types=types)


async def test_pages_go_on_while_events_come(room: Room) -> None:
    events = [await room.hears(str(number)) for number in range(5)]
    ids = [each.envelope.event_id for each in events]
    run = await room.run_of(events[0])
    seen: list[str] = []
    token = ""
    while True:
        answer = await run.call("PageEvents", page_size=2, page_token=token)
        seen += [event.event_id for event in answer.events]
        token = answer.next_page_token
        if not token:
            break
        await room.hears("later")
    assert seen == ids[::-1]


async def test_page_ends_at_its_bytes(stores: Stores) -> None:
    room = Room(stores, page_bytes=10_000)
    sizes = (4_000, 4_000, 20_000, 100, 100)
    events = [await room.hears("x" * size) for size in sizes]
    run = await room.run_of(events[0])
    pages = await run.all_pages("PageEvents", direction=OLDEST)
    assert [[len(event.input.text) for event in each.events] for each in pages] == [
        [4_000, 4_000],
        [20_000],
        [100, 100],
    ]
    assert all(each.ByteSize() < 10_000 + 200 or len(each.events) == 1 for each in pages)


async def test_token_is_good_for_its_query_and_conversation_alone(room: Room) -> None:
    events = [await room.hears(str(number)) for number in range(3)]
    run = await room.run_of(events[0])
    token = (await run.call("PageEvents", page_size=1)).next_page_token
    other = await room.run_of(await room.hears("x", conversation_id="other"))
    for caller, fields in ((run, {"direction": OLDEST}), (run, {"types": ["a.b"]}), (other, {})):
        with pytest.raises(InvalidArgument, match="page_token"):
            await caller.call("PageEvents", page_token=token, **fields)


async def test_what_an_adapter_may_not_add_is_in_no_event_that_is_given_out(room: Room) -> None:
    extra = {"nick": "ann", "bot_token": "SECRET", "deep": {"api_key": "SECRET", "_raw": "SECRET"}}
    event = await room.hears("x", adapter_extra_json=json.dumps(extra))
    run = await room.run_of(event)
    got = (await run.call("GetEvent", event_id=event.envelope.event_id)).event
    (listed,) = (await run.call("PageEvents")).events
    for each in (got, listed):
        assert json.loads(each.adapter_extra_json) == {"nick": "ann", "deep": {}}
        assert b"SECRET" not in each.SerializeToString()


async def test_refs_say_what_the_run_may_do_with_them(room: Room) -> None:
    event = await room.hears(input=event_pb2.EventInput(attachments=[FILE]))
    blind = await room.run_of(event, **NOTHING_GRANTED)
    seeing = await room.run_of(event)
    read = [types_pb2.ARTIFACT_PERMISSION_METADATA, types_pb2.ARTIFACT_PERMISSION_READ]
    for run, expected in ((blind, []), (seeing, read)):
        got = (await run.call("GetEvent", event_id=event.envelope.event_id)).event
        (listed,) = (await run.call("PageEvents")).events
        for each in (got, listed):
            assert list(each.input.attachments[0].permissions) == expected


async def test_events_take_their_permissions(room: Room) -> None:
    event = await room.hears("x")
    for granted, refused in (("get", "PageEvents"), ("page", "GetEvent")):
        run = await room.run_of(event, permissions={"events": frozenset({granted})})
        fields = {"event_id": event.envelope.event_id} if refused == "GetEvent" else {}
        with pytest.raises(Unauthorized):
            await run.call(refused, **fields)
