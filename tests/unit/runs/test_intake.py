"""Tests of `host_service.runs.intake`: events that bring files, in bytes or by reference."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
from runmesh.v1 import event_pb2, types_pb2

from host_service.authorization.callers import Caller, Role
from host_service.errors import (
    AlreadyExists,
    HostError,
    InvalidArgument,
    NoBinding,
    Overloaded,
    PayloadTooLarge,
    Unavailable,
)
from host_service.limits import Limits
from host_service.runs.event import Event
from host_service.runs.intake import EventIntake
from stores import Stores
from stores.records import ArtifactHeader, ArtifactRecord
from tests.unit.runs.samples import an_envelope

ANYBODY = Caller("key", Role.INGRESS)
ACME = Caller("key", Role.INGRESS, workspace="acme")
DESK = Caller("key", Role.INGRESS, workspace="acme", bot="desk")
MORE: dict[str, Any] = {"conversation_id": "another", "thread_id": ""}


@pytest.fixture
def intake(stores: Stores) -> EventIntake:
    return EventIntake(
        artifacts=stores.artifacts,
        events=stores.events,
        limits=Limits(),
        clock=lambda: datetime.now(UTC),
    )


def inline(data: bytes = b"bytes", **fields: Any) -> types_pb2.ContentPart:
    given = {"mime_type": "image/png", "name": "a.png"} | fields
    return types_pb2.ContentPart(inline=types_pb2.InlineContent(data=data, **given))


def ref_to(record: ArtifactRecord, **fields: Any) -> types_pb2.ArtifactRef:
    given = {"artifact_id": record.artifact_id, "type": "file", "sha256": record.sha256} | fields
    return types_pb2.ArtifactRef(**given)


def said(*parts: types_pb2.ContentPart, **fields: Any) -> event_pb2.EventInput:
    return event_pb2.EventInput(text="look", parts=parts, **fields)


async def upload(stores: Stores, artifact_id: str = "a", **changes: Any) -> ArtifactRecord:
    """Store a file that a caller whose key is not limited brought."""
    fields: dict[str, Any] = {
        "artifact_id": artifact_id,
        "workspace": "",
        "bot": "",
        "conversation_key": "",
        "type": "voice",
        "mime_type": "audio/ogg",
        "created_at": datetime.now(UTC),
    }

    async def chunks() -> AsyncIterator[bytes]:
        yield b"sound"

    return await stores.artifacts.write(ArtifactHeader(**(fields | changes)), chunks())


async def faults(intake: EventIntake, caller: Caller = ANYBODY, **fields: Any) -> list[str]:
    """Return the fields that a refused event is refused for."""
    with pytest.raises(InvalidArgument) as refused:
        await intake.take_in(an_envelope(**fields), caller)
    return [fault.field for fault in refused.value.faults]


async def kept(stores: Stores) -> list[str]:
    page = await stores.artifacts.list_of_workspace("acme")
    return [each.artifact_id for each in page.items]


async def test_event_without_files_is_taken_in_as_it_is(
    stores: Stores, intake: EventIntake
) -> None:
    url = types_pb2.ContentPart(url=types_pb2.UrlContent(url="https://example.org/a.png"))
    for content in (said(), said(types_pb2.ContentPart(text="a"), url)):
        event = await intake.take_in(an_envelope(input=content), ANYBODY)
        assert event.envelope.input == content
        assert not event.stored
    assert await kept(stores) == []


async def test_inline_bytes_become_artifacts_of_the_conversation(
    stores: Stores, intake: EventIntake
) -> None:
    parts = (types_pb2.ContentPart(text="look"), inline(b"one"), inline(b"", mime_type="x/y"))
    event = await intake.take_in(an_envelope(input=said(*parts)), ANYBODY)
    text, first, second = event.envelope.input.parts
    assert text == parts[0]
    assert (first.artifact.type, first.artifact.mime_type) == ("image", "image/png")
    assert (first.artifact.name, first.artifact.size_bytes) == ("a.png", 3)
    assert first.artifact.sha256 == sha256(b"one").digest()
    assert (second.artifact.type, second.artifact.size_bytes) == ("file", 0)
    assert event.stored == (first.artifact.artifact_id, second.artifact.artifact_id)
    assert event.identity().artifacts == frozenset(event.stored)
    record = await stores.artifacts.get(first.artifact.artifact_id)
    assert record is not None
    assert (record.workspace, record.bot, record.run_id) == ("acme", "desk", None)
    assert record.conversation_key == event.conversation_key != ""
    assert await stores.artifacts.read(record.artifact_id, offset=0, length=9) == b"one"
    assert event_pb2.EventEnvelope.FromString(event.record(None).envelope) == event.envelope


async def test_second_delivery_makes_no_second_artifacts(
    stores: Stores, intake: EventIntake
) -> None:
    parts = (inline(b"same"), inline(b"same"))
    events = await asyncio.gather(
        *(intake.take_in(an_envelope(input=said(*parts)), ANYBODY) for _ in range(5))
    )
    assert len({event.digest for event in events}) == 1
    assert len({event.envelope.SerializeToString() for event in events}) == 1
    assert len(await kept(stores)) == 2
    # Once it is logged, nothing is stored or looked for again.
    await stores.events.append(events[0].record(None))
    again = await intake.take_in(an_envelope(input=said(*parts)), ANYBODY)
    assert again.envelope.input == events[0].envelope.input
    assert (again.digest, again.stored) == (events[0].digest, ())
    assert len(await kept(stores)) == 2


async def test_file_that_was_uploaded_again_is_the_same_event(
    stores: Stores, intake: EventIntake
) -> None:
    one, other = await upload(stores, "a"), await upload(stores, "b")
    first = await intake.take_in(an_envelope(input=said(attachments=[ref_to(one)])), ANYBODY)
    await stores.events.append(first.record(None))
    again = await intake.take_in(an_envelope(input=said(attachments=[ref_to(other)])), ANYBODY)
    assert again.digest == first.digest
    assert again.envelope.input.attachments[0].artifact_id == "a"


async def test_known_event_with_other_bytes_is_refused_and_leaves_nothing(
    stores: Stores, intake: EventIntake
) -> None:
    first = await intake.take_in(an_envelope(input=said(inline(b"one"))), ANYBODY)
    await stores.events.append(first.record(None))
    with pytest.raises(AlreadyExists):
        await intake.take_in(an_envelope(input=said(inline(b"two"))), ANYBODY)
    assert await kept(stores) == list(first.stored)


async def test_files_of_a_refused_event_are_given_back_where_nobody_else_has_them(
    stores: Stores, intake: EventIntake
) -> None:
    cases: list[tuple[str, HostError, bool]] = [
        ("event-1", Overloaded("full"), False),
        ("event-1", NoBinding("none"), False),
        ("event-1", Unavailable("in doubt"), False),
        ("event-1", AlreadyExists("other content"), True),
        ("", NoBinding("none"), False),
        ("", Unavailable("in doubt"), False),
        ("", Overloaded("full"), True),
    ]
    for number, (event_id, refusal, is_gone) in enumerate(cases):
        envelope = an_envelope(event_id=event_id, input=said(inline(b"%d" % number)))
        event = await intake.take_in(envelope, ANYBODY)
        await intake.give_back(event, refusal)
        (artifact_id,) = event.identity().artifacts
        assert (await stores.artifacts.get(artifact_id) is None) is is_gone, cases[number]


@pytest.mark.parametrize("field", ["name", "mime_type"])
async def test_inline_part_that_breaks_a_rule_is_named_and_leaves_nothing(
    stores: Stores, intake: EventIntake, field: str
) -> None:
    parts = (inline(), types_pb2.ContentPart(inline=_unfit(field)))
    assert await faults(intake, input=said(*parts)) == [f"event.input.parts[1].inline.{field}"]
    assert await kept(stores) == []


def _unfit(field: str) -> types_pb2.InlineContent:
    part = inline().inline
    setattr(part, field, "../\n")
    return part


async def test_ref_says_what_is_stored_whatever_the_caller_says(
    stores: Stores, intake: EventIntake
) -> None:
    record = await upload(stores, name="a.ogg", summary="a song")
    lie = ref_to(record, name="b.exe", mime_type="x/y", size_bytes=2**40, summary="a lie")
    content = said(types_pb2.ContentPart(artifact=lie), attachments=[lie])
    event = await intake.take_in(an_envelope(input=content), ANYBODY)
    for ref in (event.envelope.input.parts[0].artifact, event.envelope.input.attachments[0]):
        assert (ref.artifact_id, ref.type, ref.mime_type) == ("a", "voice", "audio/ogg")
        assert (ref.name, ref.size_bytes, ref.summary) == ("a.ogg", 5, "a song")
    assert event.identity().artifacts == frozenset({"a"})


async def test_upload_becomes_the_conversations_and_no_others(
    stores: Stores, intake: EventIntake
) -> None:
    content = said(attachments=[ref_to(await upload(stores))])
    event = await intake.take_in(an_envelope(input=content), ANYBODY)
    record = await stores.artifacts.get("a")
    assert record is not None
    assert (record.workspace, record.bot) == ("acme", "desk")
    assert record.conversation_key == event.conversation_key
    # Again in the same conversation, and not in another.
    await intake.take_in(an_envelope(input=content, event_id="2"), DESK)
    places: list[dict[str, Any]] = [MORE, {"bot_id": "other"}, {"workspace_id": "other"}]
    for elsewhere in (*places, {"thread_id": ""}):
        named = await faults(intake, input=content, event_id="3", **elsewhere)
        assert named == ["event.input.attachments[0].artifact_id"]


NOT_THE_CALLERS: dict[str, tuple[dict[str, Any], Caller]] = {
    "of an unlimited key": ({}, ACME),
    "of another workspace": ({"workspace": "other"}, ANYBODY),
    "of another bot": ({"workspace": "acme", "bot": "other"}, ACME),
    "of the workspace, beyond the bot": ({"workspace": "acme"}, DESK),
    "of another conversation": (
        {"workspace": "acme", "bot": "desk", "conversation_key": "x"},
        DESK,
    ),
    "of a run without a conversation": ({"workspace": "acme", "bot": "desk", "run_id": "r"}, DESK),
    "expired": ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, ANYBODY),
}


@pytest.mark.parametrize("name", NOT_THE_CALLERS)
async def test_ref_that_is_not_the_callers_to_give_is_refused_as_one_to_nothing(
    stores: Stores, intake: EventIntake, name: str
) -> None:
    changes, caller = NOT_THE_CALLERS[name]
    record = await upload(stores, **changes)
    refs = [ref_to(record), ref_to(record, artifact_id="nothing")]
    parts = [types_pb2.ContentPart(artifact=ref) for ref in refs]
    told = []
    for part in parts:
        with pytest.raises(InvalidArgument) as refused:
            await intake.take_in(an_envelope(input=said(part)), caller)
        told.append([str(fault) for fault in refused.value.faults])
    assert told[0] == told[1]
    assert await faults(intake, caller, input=said(attachments=refs[:1])) == [
        "event.input.attachments[0].artifact_id"
    ]
    raw = event_pb2.RawEventRef(artifact_id="a", size_bytes=5, sha256=record.sha256)
    assert await faults(intake, caller, raw_ref=raw) == ["event.raw_ref.artifact_id"]
    if record.expires_at is None:
        assert await stores.artifacts.get("a") == record


USABLE: dict[str, tuple[dict[str, Any], Caller]] = {
    "of an unlimited key": ({}, ANYBODY),
    "of the workspace": ({"workspace": "acme"}, ACME),
    "of the bot": ({"workspace": "acme", "bot": "desk"}, DESK),
    "of the bot, by one who may more": ({"workspace": "acme", "bot": "desk"}, ACME),
}


@pytest.mark.parametrize("name", USABLE)
@pytest.mark.parametrize("conversation", ["room", ""])
async def test_upload_within_the_callers_reach_can_be_given(
    stores: Stores, intake: EventIntake, name: str, conversation: str
) -> None:
    changes, caller = USABLE[name]
    record = await upload(stores, **changes)
    event = await intake.take_in(
        an_envelope(
            input=said(attachments=[ref_to(record)]), conversation_id=conversation, thread_id=""
        ),
        caller,
    )
    found = await stores.artifacts.get("a")
    assert found is not None
    assert (found.workspace, found.bot) == ("acme", "desk")
    assert found.conversation_key == event.conversation_key
    assert event.identity().artifacts == frozenset({"a"})


async def test_artifact_that_a_run_made_can_be_named_in_its_conversation(
    stores: Stores, intake: EventIntake
) -> None:
    key = (await intake.take_in(an_envelope(), ANYBODY)).conversation_key
    record = await upload(
        stores, workspace="acme", bot="desk", conversation_key=key, run_id="run-0"
    )
    content = said(attachments=[ref_to(record)])
    await intake.take_in(an_envelope(input=content), DESK)
    assert await faults(intake, DESK, input=content, **MORE) == [
        "event.input.attachments[0].artifact_id"
    ]


async def test_raw_event_is_held_against_what_is_stored(
    stores: Stores, intake: EventIntake
) -> None:
    record = await upload(stores)
    raw = event_pb2.RawEventRef(artifact_id="a", size_bytes=2**40, sha256=record.sha256)
    event = await intake.take_in(an_envelope(raw_ref=raw), ANYBODY)
    assert event.envelope.raw_ref.size_bytes == 5
    assert event.identity().artifacts == frozenset({"a"})
    raw.sha256 = b"x" * 32
    assert await faults(intake, raw_ref=raw) == ["event.raw_ref.sha256"]
    key = event_pb2.RawEventRef(storage_key="k", size_bytes=1, sha256=b"x" * 32)
    assert (await intake.take_in(an_envelope(raw_ref=key), ANYBODY)).envelope.raw_ref == key


async def test_all_bad_refs_are_named_at_once(stores: Stores, intake: EventIntake) -> None:
    good = ref_to(await upload(stores))
    wrong = ref_to(await upload(stores, "b"), sha256=b"x" * 32)
    nothing = types_pb2.ArtifactRef(artifact_id="../x", type="file", sha256=b"x" * 32)
    content = said(types_pb2.ContentPart(artifact=nothing), attachments=[good, nothing])
    assert await faults(intake, input=content) == [
        "event.input.parts[0].artifact.artifact_id",
        "event.input.attachments[1].artifact_id",
    ]
    content = said(types_pb2.ContentPart(artifact=wrong), attachments=[good])
    assert await faults(intake, input=content) == ["event.input.parts[0].artifact.sha256"]
    record = await stores.artifacts.get("a")
    assert record is not None
    assert not record.conversation_key


async def test_event_that_is_too_large_with_its_bytes_is_refused(
    stores: Stores, intake: EventIntake
) -> None:
    parts = (inline(b"x" * 2**20), inline(b"y" * 2**20))
    with pytest.raises(PayloadTooLarge):
        await intake.take_in(an_envelope(input=said(*parts)), ANYBODY)
    assert await kept(stores) == []


async def test_files_of_a_caller_that_goes_away_in_the_middle_are_given_back(
    stores: Stores, intake: EventIntake
) -> None:
    for event_id, is_left in (("", 0), ("event-1", 2)):
        envelope = an_envelope(event_id=event_id, input=said(inline(b"one"), inline(b"two")))
        call = asyncio.create_task(_taken_in(intake, envelope))
        async with asyncio.timeout(10):
            while not await kept(stores):  # noqa: ASYNC110 - a store tells nobody of a change
                await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await stores.journal.flush()
        assert len(await kept(stores)) == is_left


async def _taken_in(intake: EventIntake, envelope: event_pb2.EventEnvelope) -> Event:
    return await intake.take_in(envelope, ANYBODY)
