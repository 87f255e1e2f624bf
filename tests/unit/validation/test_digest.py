"""A redelivered event is recognised by what it says, however it is written."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from runmesh.v1 import event_pb2, types_pb2

from host_service.validation.digest import event_digest

_JSON = '{"b":[1,{"y":2,"x":null}],"a":"é"}'


def _event() -> event_pb2.EventEnvelope:
    return event_pb2.EventEnvelope(
        event_id="evt-1",
        type="message.received",
        source=event_pb2.EVENT_SOURCE_PLATFORM,
        workspace_id="workspace",
        bot_id="bot",
        conversation_id="room",
        thread_id="thread",
        actor=event_pb2.Actor(type="user", id="u-1", name="Ann", metadata={"a": "1", "b": "2"}),
        subject=event_pb2.Subject(type="message", id="m-1", data_json=_JSON),
        input=event_pb2.EventInput(
            text="Hello",
            parts=[
                types_pb2.ContentPart(text="Hello"),
                types_pb2.ContentPart(
                    inline=types_pb2.InlineContent(data=b"\x00\x01", mime_type="image/png")
                ),
            ],
            attachments=[
                types_pb2.ArtifactRef(
                    artifact_id="art-1",
                    type="file",
                    size_bytes=2**53 + 1,
                    permissions=[types_pb2.ARTIFACT_PERMISSION_READ],
                )
            ],
            message_chain_json="[]",
        ),
        data_json=_JSON,
    )


def test_digest_is_the_one_that_stores_hold_already() -> None:
    assert event_digest(_event()).hex() == (
        "f26e3c5c612c160dda0f46a13f0b2387864ff9bdff17fe2baeb9393b3962125b"
    )


def test_digest_of_a_plain_text_event_is_the_one_that_stores_hold_already() -> None:
    event = event_pb2.EventEnvelope(
        type="message.received", conversation_id="room", input=event_pb2.EventInput(text="hi")
    )
    assert event_digest(event).hex() == (
        "001232e10e879b02b3a45454198fbe10f4f599c3fabc04caf7a624d4b3091fc0"
    )


_Change = Callable[[Any], object]


def _set(path: str, value: object) -> _Change:
    def change(event: Any) -> None:
        message = event
        *parents, name = path.split(".")
        for parent in parents:
            message = getattr(message, parent)
        setattr(message, name, value)

    return change


_SAME: dict[str, _Change] = {
    "event id": _set("event_id", "evt-2"),
    "time": lambda event: event.time.CopyFrom(Timestamp(seconds=1)),
    "source's name": _set("source_event_name", "x"),
    "delivery": _set("delivery.surface", "telegram"),
    "raw ref": _set("raw_ref.storage_key", "k"),
    "adapter extra": _set("adapter_extra_json", "{}"),
    "metadata": lambda event: event.metadata.update({"k": "v"}),
    "white space in JSON": _set("data_json", ' {"b": [1, {"y": 2, "x": null}],\n "a": "é"} '),
    "order of names in JSON": _set("data_json", '{"a":"é","b":[1,{"x":null,"y":2}]}'),
    "escapes in JSON": _set("data_json", '{"\\u0062":[1,{"y":2,"x":null}],"a":"\\u00e9"}'),
    "id of an attachment": lambda event: _set("artifact_id", "2")(event.input.attachments[0]),
    "permissions": lambda event: event.input.attachments[0].permissions.pop(),
    "expiry of an attachment": lambda event: event.input.attachments[0].expires_at.CopyFrom(
        Timestamp(seconds=1)
    ),
    "order of names deep down": _set("subject.data_json", '{"a":"é","b":[1,{"x":null,"y":2}]}'),
}

_DIFFERENT: dict[str, _Change] = {
    "type": _set("type", "message.recalled"),
    "conversation": _set("conversation_id", "room2"),
    "no conversation": _set("conversation_id", ""),
    "thread": _set("thread_id", ""),
    "thread moved to conversation": lambda event: (
        _set("conversation_id", "roomthread")(event),
        _set("thread_id", "")(event),
    ),
    "actor's id": _set("actor.id", "u-2"),
    "actor's name": _set("actor.name", ""),
    "actor's metadata": lambda event: event.actor.metadata.update({"b": "3"}),
    "actor's metadata, moved": lambda event: event.actor.metadata.update({"a": "2", "b": "1"}),
    "no actor": lambda event: event.ClearField("actor"),
    "subject": _set("subject.type", "request"),
    "subject's data": _set("subject.data_json", "{}"),
    "no data of the subject": lambda event: event.subject.ClearField("data_json"),
    "text": _set("input.text", "Hello "),
    "empty text": _set("input.text", ""),
    "no text": lambda event: event.input.ClearField("text"),
    "no input": lambda event: event.ClearField("input"),
    "message chain": _set("input.message_chain_json", "[[]]"),
    "one part less": lambda event: event.input.parts.pop(),
    "parts in another order": lambda event: event.input.parts.reverse(),
    "bytes": lambda event: _set("inline.data", b"\x00\x02")(event.input.parts[1]),
    "attachment": lambda event: _set("size_bytes", 2**53 + 2)(event.input.attachments[0]),
    "digest of an attachment": lambda event: _set("sha256", b"x" * 32)(event.input.attachments[0]),
    "type of an attachment": lambda event: _set("type", "image")(event.input.attachments[0]),
    "name of an attachment": lambda event: _set("name", "a.txt")(event.input.attachments[0]),
    "no attachment": lambda event: event.input.attachments.pop(),
    "data": _set("data_json", '{"b":[1,{"y":2,"x":null}],"a":"e"}'),
    "no data": lambda event: event.ClearField("data_json"),
    "null is not none": _set("data_json", "null"),
    "order of a list": _set("data_json", '{"b":[{"y":2,"x":null},1],"a":"é"}'),
    "a number as text": _set("data_json", '{"b":["1",{"y":2,"x":null}],"a":"é"}'),
    "a number written otherwise": _set("data_json", '{"b":[1.0,{"y":2,"x":null}],"a":"é"}'),
    "a number's last digit": _set("data_json", "9007199254740993"),
}


@pytest.mark.parametrize("name", _SAME)
def test_digest_stays_under_what_is_not_content(name: str) -> None:
    event = _event()
    _SAME[name](event)
    assert event_digest(event) == event_digest(_event())


@pytest.mark.parametrize("name", _DIFFERENT)
def test_digest_differs_under_every_change_of_content(name: str) -> None:
    event = _event()
    _DIFFERENT[name](event)
    assert event_digest(event) != event_digest(_event())


def test_all_changes_of_content_differ_from_each_other() -> None:
    digests = set()
    for change in _DIFFERENT.values():
        event = _event()
        change(event)
        digests.add(event_digest(event))
    assert len(digests) == len(_DIFFERENT)


def test_maps_count_in_whatever_order_they_were_filled() -> None:
    event = _event()
    event.actor.metadata.clear()
    for key in ("b", "a"):
        event.actor.metadata[key] = {"a": "1", "b": "2"}[key]
    assert event_digest(event) == event_digest(_event())


def test_integers_that_a_double_cannot_tell_apart_differ() -> None:
    one = event_pb2.EventEnvelope(type="a.b", data_json="9007199254740992")
    other = event_pb2.EventEnvelope(type="a.b", data_json="9007199254740993")
    assert event_digest(one) != event_digest(other)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "9" * 100_000, "NaN"])
def test_text_that_is_not_json_has_a_digest_too(text: str) -> None:
    event = event_pb2.EventEnvelope(type="a.b", data_json=text)
    assert len(event_digest(event)) == 32
