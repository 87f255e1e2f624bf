"""Tests of `host_service.caller_transcript`: which conversations a caller reads, and how."""

from datetime import timedelta
from typing import Any

import pytest
from runmesh.v1 import event_pb2, gateway_pb2, host_api_pb2, types_pb2

from host_service.authorization.callers import Caller, Role
from host_service.caller_transcript import CallerTranscript
from host_service.errors import InvalidArgument, NotFound
from host_service.pages import PageTokens
from stores import Stores
from stores.records import RunEnd, RunStatus
from tests.unit.capabilities.rooms import NOON, Room, texts

OPERATOR = Caller("key", Role.OPERATOR)
ROOM = {"workspace_id": "acme", "bot_id": "desk", "conversation_id": "room"}
OLDEST = host_api_pb2.PAGE_DIRECTION_OLDEST_FIRST
FILE = types_pb2.ArtifactRef(
    artifact_id="a-1",
    type="file",
    permissions=[types_pb2.ARTIFACT_PERMISSION_METADATA, types_pb2.ARTIFACT_PERMISSION_READ],
)


@pytest.fixture
def room(stores: Stores) -> Room:
    return Room(stores)


async def page(
    room: Room, caller: Caller = OPERATOR, **fields: Any
) -> gateway_pb2.PageConversationResponse:
    transcript = CallerTranscript(transcript=room.pages, pages=PageTokens(limits=room.limits))
    request = gateway_pb2.PageConversationRequest(**(ROOM | fields))
    return gateway_pb2.PageConversationResponse.FromString(await transcript.page(caller, request))


async def test_all_that_was_said_is_there_with_its_artifacts(room: Room) -> None:
    event = await room.hears("look", input=event_pb2.EventInput(attachments=[FILE]))
    await room.says(event, "seen", artifacts=[FILE])
    await room.talk("of a topic", thread_id="topic")
    items = (await page(room)).items
    assert texts(items) == ["seen", "look"]
    # A caller may do what the ref says.
    assert [list(item.artifacts) for item in items] == [[FILE], [FILE]]
    assert texts((await page(room, direction=OLDEST)).items) == ["look", "seen"]
    assert texts((await page(room, thread_id="topic")).items) == ["of a topic"]


async def test_pages_go_on_while_more_is_said_and_tokens_stay_in_their_conversation(
    room: Room,
) -> None:
    await room.talk("1", "2", "3")
    await room.talk("1", "2", "3", thread_id="topic")
    first = await page(room, page_size=2)
    await room.talk("4")
    rest = await page(room, page_size=2, page_token=first.next_page_token)
    assert texts([*first.items, *rest.items]) == ["3", "2", "1"]
    assert rest.next_page_token == ""
    for fields in ({"thread_id": "topic"}, {"bot_id": ""}, {"direction": OLDEST}):
        with pytest.raises((InvalidArgument, NotFound)) as refused:
            await page(room, page_token=first.next_page_token, **fields)
        assert isinstance(refused.value, InvalidArgument)


async def test_conversation_out_of_reach_looks_like_one_in_which_nothing_was_said(
    room: Room,
) -> None:
    await room.talk("private")
    told = set()
    for caller, fields in (
        (OPERATOR, {"conversation_id": "room", "bot_id": ""}),
        (OPERATOR, {"thread_id": "topic"}),
        (Caller("key", Role.VIEWER, workspace="other"), {}),
        (Caller("key", Role.VIEWER, bot="other"), {}),
        (Caller("key", Role.VIEWER, workspace="acme", bot="other"), {}),
    ):
        with pytest.raises(NotFound) as refused:
            await page(room, caller, **fields)
        told.add(refused.value.message)
    assert told == {"there is no conversation 'room'"}
    within = Caller("key", Role.VIEWER, workspace="acme", bot="desk")
    assert texts((await page(room, within)).items) == ["private"]


async def test_conversation_from_which_all_was_removed_is_empty(room: Room, stores: Stores) -> None:
    for event in (await room.hears("old"), await room.hears("older")):
        run_id = f"run of {event.envelope.event_id}"
        end = RunEnd(run_id=run_id, status=RunStatus.COMPLETED, ended_at=NOON, last_sequence=1)
        await stores.ledger.finish(end)
    first = await page(room, page_size=1)
    await stores.retention.purge("acme", before=NOON + timedelta(days=1))
    assert await page(room) == gateway_pb2.PageConversationResponse()
    rest = await page(room, page_size=1, page_token=first.next_page_token)
    assert rest == gateway_pb2.PageConversationResponse()
    await room.talk("new")
    assert texts((await page(room)).items) == ["new"]
