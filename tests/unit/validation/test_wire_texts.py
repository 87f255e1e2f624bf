"""Tests of `host_service.validation.wire_texts`: what protobuf refuses whole is told and mended."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runmesh.v1 import event_pb2, gateway_pb2, run_pb2, types_pb2

from host_service.validation.wire_texts import Malformed, mend_texts

REQUEST = gateway_pb2.DispatchRequest
HIGH, LOW = b"\xed\xa0\xbd", b"\xed\xb8\x80"


def a_request(**fields: Any) -> gateway_pb2.DispatchRequest:
    return REQUEST(event=event_pb2.EventEnvelope(**fields), agent_id="agent")


def with_bytes(request: gateway_pb2.DispatchRequest, **wrong: bytes) -> bytes:
    """Return a request on the wire with a marker's place taken by bytes of the same length."""
    data = request.SerializeToString()
    for marker, content in wrong.items():
        assert len(marker) == len(content)
        assert data.count(marker.encode()) == 1
        data = data.replace(marker.encode(), content)
    return data


def test_message_without_a_fault_stays_byte_for_byte_what_it_is() -> None:
    request = a_request(
        type="message.received",
        input=event_pb2.EventInput(text="世界 👩‍👩‍👧", parts=[types_pb2.ContentPart(text="é")]),
        metadata={"a": "1", "b": "2"},
        raw_ref=event_pb2.RawEventRef(artifact_id="x", size_bytes=1 << 40, sha256=b"\xff" * 32),
    )
    request.event.time.GetCurrentTime()
    mended = mend_texts(request.SerializeToString(), REQUEST.DESCRIPTOR)
    assert mended.data == request.SerializeToString()
    assert mended.fields == ()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (HIGH, "\ufffd"),
        (LOW, "\ufffd"),
        (HIGH + LOW, "\U0001f600"),
        (HIGH + b"x" + LOW, "\ufffdx\ufffd"),
        (b"a\xff", "a\ufffd"),
        (b"\xe4\xb8", "\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
    ],
)
def test_what_is_no_unicode_is_replaced_and_told(content: bytes, text: str) -> None:
    marker = "M" * len(content)
    request = a_request(input=event_pb2.EventInput(text=f"before {marker} after"))
    mended = mend_texts(with_bytes(request, **{marker: content}), REQUEST.DESCRIPTOR)
    assert mended.fields == ("event.input.text",)
    read = REQUEST.FromString(mended.data)
    assert read.event.input.text == f"before {text} after"
    assert read.agent_id == "agent"


def test_every_fault_is_told_by_its_path() -> None:
    request = a_request(
        bot_id="AAA",
        input=event_pb2.EventInput(
            parts=[types_pb2.ContentPart(text="fine"), types_pb2.ContentPart(text="BBB")]
        ),
        metadata={"CCC": "DDD", "fine": "fine"},
    )
    data = with_bytes(request, AAA=HIGH, BBB=LOW, CCC=HIGH, DDD=LOW)
    assert set(mend_texts(data, REQUEST.DESCRIPTOR).fields) == {
        "event.bot_id",
        "event.input.parts[1].text",
        "event.metadata",
    }


def test_bytes_may_be_anything() -> None:
    request = a_request(raw_ref=event_pb2.RawEventRef(artifact_id="x", sha256=HIGH * 10))
    assert mend_texts(request.SerializeToString(), REQUEST.DESCRIPTOR).fields == ()


def test_fields_of_a_later_version_are_kept() -> None:
    unknown = b"\xc2\x3e\x03" + HIGH + b"\xc0\x3e\x01\xc9\x3e" + b"8" * 8
    data = a_request(type="x.y").SerializeToString() + unknown
    assert mend_texts(data, REQUEST.DESCRIPTOR).data == data


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\x08",
        b"\x08" + b"\xff" * 11,
        b"\x0b\x0c",
        b"\x00\x00",
        b"\x0d\x00",
    ],
)
def test_bytes_that_are_no_message_are_said_to_be_none(data: bytes) -> None:
    with pytest.raises(Malformed):
        mend_texts(data, REQUEST.DESCRIPTOR)


@given(st.binary(max_size=200))
def test_whatever_comes_is_mended_or_refused(data: bytes) -> None:
    try:
        mended = mend_texts(data, run_pb2.RunResponse.DESCRIPTOR)
    except Malformed:
        return
    assert mend_texts(mended.data, run_pb2.RunResponse.DESCRIPTOR).fields == ()
