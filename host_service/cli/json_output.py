"""Messages of the contract as JSON: its field names, whole integers, RFC 3339 times."""

import base64
import json
from collections.abc import Iterable
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

Json = dict[str, Any]


def to_json(message: Message) -> Json:
    """Turns a message into what `json.dumps` takes.

    Unlike protobuf's own JSON it keeps the contract's names, and writes 64-bit integers as numbers.
    What has no presence is there even when it is empty, so that every object of a list has the same
    names; what may be absent and is, is left out.
    """
    shown: Json = {}
    # Two implementations of protobuf have two types for what is one.
    for field in cast("Descriptor", message.DESCRIPTOR).fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        shown[field.name] = _field_value(field, getattr(message, field.name))
    return shown


def print_json(value: object) -> None:
    """Prints a value, indented."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_json_list(messages: Iterable[Message]) -> None:
    """Prints messages as an array."""
    print_json([to_json(message) for message in messages])


def print_json_line(value: object) -> None:
    """Prints a value as one line, at once."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), flush=True)


def _field_value(field: FieldDescriptor, value: Any) -> Any:
    if not field.is_repeated:
        return _value(field, value)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        item = entry.fields_by_name["value"]
        return {str(key): _value(item, value[key]) for key in sorted(value)}
    return [_value(field, item) for item in value]


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        # A value of a later version stays a number.
        return known.name if known else value
    if isinstance(value, Timestamp | Duration):
        return value.ToJsonString()
    if isinstance(value, Message):
        return to_json(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value
