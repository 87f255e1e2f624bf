"""Tests of `host_service.runs.event`: what an event is known by, and what the host makes of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st
from runmesh.v1 import event_pb2, types_pb2

from host_service.errors import InvalidArgument, PayloadTooLarge
from host_service.limits import Limits
from host_service.runs.event import Event, conversation_key, known, source_name, take_in
from tests.unit.runs.samples import NOON, an_envelope, an_event


def taken_in(limits: Limits | None = None, **changes: Any) -> Event:
    return take_in(an_envelope(**changes), received_at=NOON, limits=limits or Limits())


def test_event_without_an_id_gets_one_and_is_no_redelivery_of_any() -> None:
    one, other = taken_in(event_id=""), taken_in(event_id="")
    assert one.envelope.event_id != other.envelope.event_id
    assert not one.has_own_id
    assert taken_in(event_id="mine").has_own_id
    assert taken_in(event_id="mine").envelope.event_id == "mine"


def test_source_that_is_not_named_is_the_api_and_any_other_is_kept() -> None:
    assert taken_in(source=0).envelope.source == event_pb2.EVENT_SOURCE_API
    assert taken_in(source=1).envelope.source == event_pb2.EVENT_SOURCE_PLATFORM
    # One that a later version defines.
    assert taken_in(source=77).envelope.source == 77
    assert taken_in(source=77).record(None).source == "source_77"


@pytest.mark.parametrize("source", event_pb2.EventSource.values())
def test_every_source_has_a_name_of_its_own(source: int) -> None:
    names = {source_name(each) for each in (*event_pb2.EventSource.values(), 77)}
    assert len(names) == len(event_pb2.EventSource.values()) + 1
    assert source_name(source).islower()


def test_envelope_over_the_limit_is_refused_with_size_and_limit() -> None:
    size = an_envelope().ByteSize()
    assert taken_in(replace(Limits(), event_bytes=size)).envelope == an_envelope()
    with pytest.raises(PayloadTooLarge) as raised:
        taken_in(replace(Limits(), event_bytes=size - 1))
    assert raised.value.facts == {"size": str(size), "limit": str(size - 1)}


def test_inline_bytes_count_into_the_envelope() -> None:
    inline = types_pb2.InlineContent(data=b"x" * 100_000, mime_type="image/png")
    content = event_pb2.EventInput(parts=[types_pb2.ContentPart(inline=inline)])
    with pytest.raises(PayloadTooLarge):
        taken_in(replace(Limits(), event_bytes=100_000), input=content)


def test_thread_without_a_conversation_is_refused_by_the_name_of_the_field() -> None:
    with pytest.raises(InvalidArgument) as raised:
        taken_in(conversation_id="")
    assert [fault.field for fault in raised.value.faults] == ["event.thread_id"]


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        ('{"room": 9007199254740993}', '{"room": 9007199254740993}'),
        ('{"_hidden": 1, "room": 9007199254740993}', '{"room":9007199254740993}'),
        ('{"api_key": "k", "auth": {"Token": "t"}}', '{"auth":{}}'),
        ('{"api_key": "k"}', None),
    ],
)
def test_adapter_extra_passes_the_filter(extra: str, kept: str | None) -> None:
    envelope = taken_in(adapter_extra_json=extra).envelope
    assert envelope.HasField("adapter_extra_json") is (kept is not None)
    if kept is not None:
        assert envelope.adapter_extra_json.replace(" ", "") == kept.replace(" ", "")


_WHAT_IT_SAYS: Mapping[str, Any] = {
    "type": "message.recalled",
    "conversation_id": "other",
    "thread_id": "other",
    "actor": event_pb2.Actor(type="user", id="bob"),
    "subject": event_pb2.Subject(type="message", id="m"),
    "input": event_pb2.EventInput(text="hello!"),
    "data_json": '{"a": 1}',
}
_WHAT_COMES_ALONG: Mapping[str, Any] = {
    "time": Timestamp(seconds=1),
    "delivery": event_pb2.DeliveryContext(surface="console"),
    "adapter_extra_json": '{"a": 1}',
    "metadata": {"a": "1"},
    "source_event_name": "other",
    "event_id": "other",
}


@pytest.mark.parametrize("field", _WHAT_IT_SAYS)
def test_event_that_says_something_else_has_another_digest(field: str) -> None:
    assert taken_in(**{field: _WHAT_IT_SAYS[field]}).digest != taken_in().digest


@pytest.mark.parametrize("field", _WHAT_COMES_ALONG)
def test_time_delivery_and_extras_are_no_part_of_the_digest(field: str) -> None:
    assert taken_in(**{field: _WHAT_COMES_ALONG[field]}).digest == taken_in().digest


def test_redelivery_is_recognised_however_its_json_is_written_and_when_it_comes() -> None:
    one = taken_in(data_json='{"a": 1, "b": "\\u4f60"}')
    later = take_in(
        an_envelope(data_json='{ "b":"你","a":1}'),
        received_at=NOON.replace(year=2027),
        limits=Limits(),
    )
    assert later.digest == one.digest


def test_event_from_the_log_is_the_event_that_was_taken_in() -> None:
    event = taken_in(event_id="", adapter_extra_json='{"_x": 1}', data_json='{"a": 1}')
    stored = event.record("run-1")
    again = known(event_pb2.EventEnvelope.FromString(stored.envelope), received_at=NOON)
    assert (again.envelope, again.digest) == (event.envelope, event.digest)
    assert again.conversation_key == event.conversation_key


def test_record_has_what_the_event_log_is_searched_by() -> None:
    time = Timestamp(seconds=1_000_000, nanos=123_456_000)
    record = taken_in(time=time, input=event_pb2.EventInput(text="你" * 1001)).record("run-1")
    assert (record.workspace, record.bot, record.source) == ("acme", "desk", "platform")
    assert (record.event_id, record.type, record.run_id) == (
        "event-1",
        "message.received",
        "run-1",
    )
    assert record.input_summary == "你" * 1000
    assert record.received_at == NOON
    assert record.occurred_at is not None
    assert record.occurred_at.timestamp() == 1_000_000.123456
    assert taken_in().record(None).occurred_at is None


def test_conversation_is_known_by_workspace_bot_conversation_and_thread() -> None:
    parts = {"workspace": "a", "bot": "b", "conversation": "c", "thread": "d"}
    keys = {conversation_key(**(parts | {name: "x"})) for name in parts}
    assert len(keys | {conversation_key(**parts)}) == 5
    assert conversation_key(**(parts | {"conversation": ""})) == ""


_ids = st.text(":01ab", max_size=3)


@given(st.tuples(_ids, _ids, _ids, _ids), st.tuples(_ids, _ids, _ids, _ids))
@settings(max_examples=100, deadline=None)
def test_two_conversations_never_share_a_key(
    one: tuple[str, str, str, str], other: tuple[str, str, str, str]
) -> None:
    keys = [
        conversation_key(workspace=a, bot=b, conversation=f"c{c}", thread=d)
        for a, b, c, d in (one, other)
    ]
    assert (keys[0] == keys[1]) is (one == other)


FULL = an_event(
    data_json=(
        '{"room": "7", "big": 9007199254740993, "deep": {"on": true, "list": [1]}, "no": null}'
    ),
    metadata={"room": "blue", "a.b": "dotted"},
    subject=event_pb2.Subject(type="message", id="m", data_json='{"x": 1}'),
    delivery=event_pb2.DeliveryContext(
        surface="console", supports_edit=True, max_message_characters=4000
    ),
    raw_ref=event_pb2.RawEventRef(storage_key="k", size_bytes=2**53 + 1, sha256=b"\xff" * 32),
)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("type", "message.received"),
        ("source_event_name", "GroupMessage"),
        ("source", "EVENT_SOURCE_PLATFORM"),
        ("actor.type", "user"),
        ("actor.id", "ann"),
        # A text that is not set is an empty one, where the contract knows no difference.
        ("actor.name", ""),
        ("subject.type", "message"),
        ("delivery.surface", "console"),
        ("delivery.supports_edit", "true"),
        ("delivery.supports_reaction", "false"),
        ("delivery.max_message_characters", "4000"),
        ("input.text", "hello"),
        ("raw_ref.storage_key", "k"),
        ("raw_ref.size_bytes", "9007199254740993"),
        ("metadata.room", "blue"),
        ("metadata.a.b", "dotted"),
        ("data.room", "7"),
        ("data.big", "9007199254740993"),
        ("data.deep.on", "true"),
        ("data.deep", '{"list": [1], "on": true}'),
        ("data.no", "null"),
        # What is not there, or is no single value.
        ("raw_ref.artifact_id", None),
        ("raw_ref.sha256", None),
        ("data.missing", None),
        ("data.room.deeper", None),
        ("data.deep.list.0", None),
        ("metadata.missing", None),
        ("metadata", None),
        ("actor", None),
        ("actor.missing", None),
        ("type.deeper", None),
        ("input.parts", None),
        ("input.parts.text", None),
        ("missing", None),
        ("", None),
        (".", None),
        ("data.", None),
    ],
)
def test_field_is_found_by_its_path_in_the_contract(path: str, text: str | None) -> None:
    assert FULL.field_text(path) == text


@pytest.mark.parametrize(
    "path",
    ["actor.type", "subject.id", "input.text", "data.room", "delivery.surface", "time.seconds"],
)
def test_field_of_what_the_event_does_not_have_is_not_there(path: str) -> None:
    bare = known(event_pb2.EventEnvelope(type="api.invoked"), received_at=NOON)
    assert bare.field_text(path) is None


@pytest.mark.parametrize("data_json", ["7", '"text"', "[1]", "null", "true"])
def test_data_that_is_no_object_has_no_fields(data_json: str) -> None:
    assert an_event(data_json=data_json).field_text("data.a") is None


def test_source_of_a_later_version_is_told_by_its_number() -> None:
    assert an_event(source=77).field_text("source") == "77"


@given(
    st.text(max_size=20)
    | st.sampled_from(["raw_ref.", "actor.metadata.", "data."]).flatmap(
        lambda head: st.text(max_size=6).map(head.__add__)
    )
)
@settings(max_examples=150, deadline=None)
def test_no_path_breaks_the_look_up(path: str) -> None:
    assert FULL.field_text(path) is None or isinstance(FULL.field_text(path), str)


def test_event_says_something_by_text_part_or_attachment_alone() -> None:
    part = types_pb2.ContentPart(text="x")
    ref = types_pb2.ArtifactRef(artifact_id="a")
    assert an_event(input=event_pb2.EventInput(parts=[part])).is_spoken
    assert an_event(input=event_pb2.EventInput(attachments=[ref])).is_spoken
    assert not an_event(input=event_pb2.EventInput(text="")).is_spoken
    assert not an_event(input=event_pb2.EventInput(message_chain_json="[]")).is_spoken


def test_identity_is_what_rights_and_state_are_keyed_by() -> None:
    identity = FULL.identity()
    assert (identity.workspace, identity.bot) == ("acme", "desk")
    assert identity.conversation_key == FULL.conversation_key
    assert (identity.actor_type, identity.actor_id) == ("user", "ann")
    assert (identity.subject_type, identity.subject_id) == ("message", "m")
