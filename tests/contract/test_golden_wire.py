"""The bytes on the wire are those that others were built against."""

from collections.abc import Iterator

import pytest
from google.protobuf import descriptor_pool, text_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from runmesh.v1 import attach_pb2, event_pb2, gateway_pb2, manifest_pb2, run_pb2

from tests.contract.golden.files import FOLDER, encode, expected_files
from tests.contract.golden.messages import golden_messages
from tests.contract.golden.values import BEYOND_DOUBLE, TEXT

_MESSAGES = golden_messages()
_REMAKE = "`python -m tests.contract.golden` writes it anew; bytes that change break old readers"


def test_there_is_one_pair_of_files_for_each_message() -> None:
    there = {path.name for path in FOLDER.iterdir() if path.suffix in {".binpb", ".txtpb"}}
    assert there == set(expected_files(_MESSAGES)), _REMAKE


@pytest.mark.parametrize("name", _MESSAGES)
def test_message_is_encoded_to_the_committed_bytes(name: str) -> None:
    assert encode(_MESSAGES[name]) == (FOLDER / f"{name}.binpb").read_bytes(), _REMAKE


@pytest.mark.parametrize("name", _MESSAGES)
def test_committed_bytes_are_decoded_to_the_message(name: str) -> None:
    decoded = _class_of(name).FromString((FOLDER / f"{name}.binpb").read_bytes())
    assert decoded == _MESSAGES[name]


@pytest.mark.parametrize("name", _MESSAGES)
def test_committed_text_means_the_message(name: str) -> None:
    committed = (FOLDER / f"{name}.txtpb").read_text("utf-8")
    assert committed.encode() == expected_files(_MESSAGES)[f"{name}.txtpb"], _REMAKE
    read = text_format.Parse(committed, _class_of(name)(), allow_unknown_field=True)
    # Text leaves out what the reader's version does not know.
    known = _class_of(name)()
    known.CopyFrom(_MESSAGES[name])
    known.DiscardUnknownFields()
    assert read == known


def test_encoding_twice_gives_the_same_bytes_in_whatever_order_a_map_was_filled() -> None:
    one, other = event_pb2.EventEnvelope(), event_pb2.EventEnvelope()
    names = [f"key-{number}" for number in range(64)]
    for name in names:
        one.metadata[name] = name
    for name in reversed(names):
        other.metadata[name] = name
    assert encode(one) == encode(other)


def test_integers_beyond_a_double_and_all_of_unicode_come_back() -> None:
    data = (FOLDER / "runmesh.v1.DispatchResponse.ended.binpb").read_bytes()
    run = gateway_pb2.DispatchResponse.FromString(data).ended
    assert run.last_sequence == BEYOND_DOUBLE
    assert run.failure.message == TEXT


def test_what_is_set_to_its_default_comes_back_as_set() -> None:
    data = (FOLDER / "runmesh.v1.EventEnvelope.set_to_defaults.binpb").read_bytes()
    event = event_pb2.EventEnvelope.FromString(data)
    assert event.HasField("data_json")
    assert event.input.HasField("text")
    assert event.delivery.HasField("max_message_characters")
    assert event.HasField("actor")
    assert not event.HasField("subject")


def test_what_a_later_version_added_survives_a_round_trip() -> None:
    data = (FOLDER / "runmesh.v1.DispatchRequest.from_a_later_version.binpb").read_bytes()
    request = gateway_pb2.DispatchRequest.FromString(data)
    assert request.on_disconnect == 99
    assert b"later" in encode(request)
    assert encode(request) == data


def test_golden_messages_set_every_field_between_host_runner_and_caller() -> None:
    wanted: set[str] = set()
    for root in (
        run_pb2.RunRequest,
        run_pb2.RunResponse,
        run_pb2.InterruptRequest,
        event_pb2.EventEnvelope,
        manifest_pb2.RunnerManifest,
        gateway_pb2.DispatchRequest,
        gateway_pb2.DispatchResponse,
        attach_pb2.AttachRequest,
        attach_pb2.AttachResponse,
    ):
        wanted |= {name for message in _reached(root.DESCRIPTOR) for name in _fields(message)}
    seen = {name for message in _MESSAGES.values() for name in _set_fields(message)}
    assert sorted(wanted - seen) == []


def _class_of(name: str) -> type[Message]:
    full_name = name.rpartition(".")[0]
    return GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(full_name))


def _reached(root: Descriptor) -> list[Descriptor]:
    waiting, found = [root], dict[str, Descriptor]()
    while waiting:
        message = waiting.pop()
        if message.full_name.startswith("runmesh.") and message.full_name not in found:
            found[message.full_name] = message
            waiting += [field.message_type for field in message.fields if field.message_type]
    return list(found.values())


def _fields(message: Descriptor) -> Iterator[str]:
    if not message.GetOptions().map_entry:
        yield from (field.full_name for field in message.fields)


def _set_fields(message: Message) -> Iterator[str]:
    for field, value in message.ListFields():
        yield field.full_name
        if field.message_type is None:
            continue
        entries = value if field.is_repeated else [value]
        if field.message_type.GetOptions().map_entry:
            entries = value.values()
        for entry in entries:
            if isinstance(entry, Message):
                yield from _set_fields(entry)
