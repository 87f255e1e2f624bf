"""Values that are easily lost on the wire, in every message of the contract."""

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from runmesh.v1 import attach_pb2, gateway_pb2, host_api_pb2

# Deeper than this messages are left empty.
_DEPTH = 5
# Field 1000, a number, and field 1001, a text: no message of this version has either.
_NEWS = b"\xc0\x3e\x01\xca\x3e\x05later"
_NEW_ENUM_NUMBER = 999

_INTEGERS = {
    FieldDescriptor.TYPE_INT32: (2**31 - 1, -(2**31)),
    FieldDescriptor.TYPE_INT64: (2**63 - 1, -(2**63)),
    FieldDescriptor.TYPE_UINT32: (2**32 - 1, 0),
    FieldDescriptor.TYPE_UINT64: (2**64 - 1, 0),
}
_REALS = {
    FieldDescriptor.TYPE_DOUBLE: (1.7976931348623157e308, float("nan")),
    FieldDescriptor.TYPE_FLOAT: (1.401298464324817e-45, float("-inf")),
}
_TEXTS = ("plain, café, 明天下午三点, 👩‍💻, שלום, \U0010ffff\u0001\u2028", "")
_BYTES = (bytes(range(256)), b"")
#: The two ends of what `google.protobuf.Timestamp` and `Duration` may be, as seconds and nanos.
_TIMES = {
    "google.protobuf.Timestamp": ((253402300799, 999999999), (-62135596800, 0)),
    "google.protobuf.Duration": ((315576000000, 999999999), (-315576000000, -1)),
}


def messages() -> Iterator[Message]:
    """Yields every message of the contract in several ways: large, small, and of a later version.

    Of a `oneof` each choice occurs.
    """
    for name in names():
        kind = GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))
        choices = max((len(each.fields) for each in kind.DESCRIPTOR.oneofs), default=1)
        for choice in range(choices):
            for end in (0, 1):
                yield _filled(kind(), end, choice, newer=False)
        yield _filled(kind(), 0, 0, newer=True)


def names() -> list[str]:
    """The messages that pass between host, runner and caller, by name."""
    files = {
        file.name: file
        for module in (attach_pb2, gateway_pb2, host_api_pb2)
        for file in (module.DESCRIPTOR, *module.DESCRIPTOR.dependencies)
        if file.package == "runmesh.v1"
    }
    return sorted(
        message.full_name
        for file in files.values()
        for message in file.message_types_by_name.values()
    )


def _filled(message: Any, end: int, choice: int, *, newer: bool, depth: int = 0) -> Any:
    """Sets every field of a message, each to one end of what it may be."""
    kind: Descriptor = message.DESCRIPTOR
    if times := _TIMES.get(kind.full_name):
        message.seconds, message.nanos = times[end]
        return message
    for field in kind.fields:
        chosen = field.containing_oneof
        # An `optional` field is a `oneof` of one.
        if chosen is None or field.index == chosen.fields[choice % len(chosen.fields)].index:
            _set(message, field, end, choice, newer=newer, depth=depth)
    if newer:
        message.MergeFromString(_NEWS)
    return message


def _set(
    message: Any, field: FieldDescriptor, end: int, choice: int, *, newer: bool, depth: int
) -> None:
    place = getattr(message, field.name)
    if field.message_type is None:
        values = _scalars(field, newer=newer)
        if field.is_repeated:
            place.extend(values)
        else:
            setattr(message, field.name, values[end])
    elif field.message_type.GetOptions().map_entry:
        value = field.message_type.fields_by_name["value"]
        for number in range(20):
            key = f"{number:02} é👩‍💻" if number else ""
            if value.message_type is None:
                place[key] = _scalars(value, newer=newer)[number % 2]
            else:
                _filled(place[key], number % 2, number, newer=newer, depth=depth + 1)
    elif field.is_repeated:
        if depth < _DEPTH:
            # One of each of its own kinds, as far as they differ.
            _filled(place.add(), end, choice, newer=newer, depth=depth + 1)
            _filled(place.add(), 1 - end, choice + 1, newer=newer, depth=depth + 2)
    else:
        place.SetInParent()
        if depth < _DEPTH:
            _filled(place, end, choice, newer=newer, depth=depth + 1)


def _scalars(field: FieldDescriptor, *, newer: bool) -> tuple[Any, Any]:
    """Both ends of what a field may be."""
    if field.type in _INTEGERS:
        return _INTEGERS[field.type]
    if field.type in _REALS:
        return _REALS[field.type]
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return _TEXTS
        case FieldDescriptor.TYPE_BYTES:
            return _BYTES
        case FieldDescriptor.TYPE_BOOL:
            return True, False
        case FieldDescriptor.TYPE_ENUM:
            assert field.enum_type is not None
            last = field.enum_type.values[-1].number
            return (_NEW_ENUM_NUMBER, -1) if newer else (last, 0)
    raise AssertionError(f"{field.full_name} is of a type that nothing here knows")
