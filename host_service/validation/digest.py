"""The digest by which a redelivered event is recognised.

SHA-256 over what an event says: type, conversation and thread, actor, subject, input and data; not
when it happened, how answers are delivered, or what an adapter added. The form that is hashed is
ours and not protobuf's, whose serialization promises no stable bytes: what is set, in the order of
field numbers, each value with its number and length in front, so that no two contents look alike.
Maps go in the order of their keys.

JSON fields count by value: white space, the order of names, and how a character is escaped make no
difference. Numbers count as they are written: `1` and `1.0`, or `1e2` and `100`, are different
contents. A text that is not JSON counts as it is.

Files count by what they are and not by where the host keeps them: a reference by its digest, type,
name and the like, without the artifact's id, its expiry and what may be done with it. Who sends an
event again may have uploaded its file again.

The digest is stored with the event. A change of the form makes known events look changed: it needs
a migration.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from runmesh.v1.event_pb2 import EventEnvelope

from host_service.validation.tree import is_map

_FORM: Final = b"runmesh event 1\n"

_UNCOUNTED: Final = frozenset(
    f"runmesh.v1.ArtifactRef.{name}" for name in ("artifact_id", "expires_at", "permissions")
)

_DECODE: Final = json.JSONDecoder(
    # Never through a double: the text stays. No name can be U+0000 in JSON that passed the rules,
    # so this cannot be mistaken for an object that somebody sent.
    parse_float=lambda text: {"\0": text},
    parse_int=lambda text: {"\0": text},
    parse_constant=lambda text: {"\0": text},
).decode
_ENCODE: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def event_digest(envelope: EventEnvelope) -> bytes:
    """Returns 32 bytes that are the same for the same content.

    Args:
        envelope: An event as it came, before inline bytes were turned into artifacts, that passed
            the rules.
    """
    return sha256(b"".join([_FORM, *(write(envelope) for write in _WRITE_PARTS)])).digest()


def json_content(text: str) -> bytes:
    """Returns bytes that are the same for JSON texts of the same value, with their length."""
    return _write_json(text)


def _framed(content: bytes) -> bytes:
    return b"%d:%b" % (len(content), content)


def _write_message(descriptor: Descriptor) -> Callable[[Any], bytes]:
    """Makes the writer of one message type: what is set in it and counts, by field number."""
    writers = {
        field.number: _write_field(field)
        for field in descriptor.fields
        if field.full_name not in _UNCOUNTED
    }

    def write(message: Message) -> bytes:
        return _framed(
            b"".join(
                [
                    b"%d=%b" % (field.number, writers[field.number](value))
                    for field, value in message.ListFields()
                    if field.number in writers
                ]
            )
        )

    return write


def _write_field(field: FieldDescriptor) -> Callable[[Any], bytes]:
    if field.message_type is not None and is_map(field):
        key, value = (_write_value(part) for part in field.message_type.fields)
        return lambda entries: _framed(
            b"".join([key(name) + value(entries[name]) for name in sorted(entries)])
        )
    write = _write_value(field)
    if field.is_repeated:
        return lambda entries: _framed(b"".join([write(entry) for entry in entries]))
    return write


def _write_value(field: FieldDescriptor) -> Callable[[Any], bytes]:
    if field.message_type is not None:
        return _write_message(field.message_type)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _framed
    if field.type == FieldDescriptor.TYPE_STRING:
        return _write_json if field.name.endswith("_json") else _write_text
    # Integers, enums and booleans: nothing that an event says is a floating-point number.
    return lambda number: _framed(b"%d" % number)


def _write_text(text: str) -> bytes:
    return _framed(text.encode())


def _write_json(text: str) -> bytes:
    try:
        canonical = _ENCODE(_DECODE(text))
    except (ValueError, RecursionError):
        return b"?" + _framed(text.encode())
    return _framed(canonical.encode())


def _write_part(name: str) -> Callable[[Any], bytes]:
    """Makes the writer of one of the event's parts; one that is empty is not the same as none."""
    field = EventEnvelope.DESCRIPTOR.fields_by_name[name]
    get, write, has_presence = attrgetter(name), _write_field(field), field.has_presence

    def write_part(envelope: Any) -> bytes:
        if has_presence and not envelope.HasField(name):
            return b"-"
        return write(get(envelope))

    return write_part


_WRITE_PARTS: Final = tuple(
    _write_part(name)
    for name in ("type", "conversation_id", "thread_id", "actor", "subject", "input", "data_json")
)
