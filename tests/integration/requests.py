"""Requests of any RPC that keep the rules of the contract, made from descriptors and rules."""

from collections.abc import Iterator
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from host_service.validation.rule_kinds import Count, Digest, Length, Required
from host_service.validation.rules import RULES
from host_service.validation.tree import is_map

# Texts of a form of their own, by the end of the field's full name.
FORMS = {
    "EventEnvelope.type": "message.received",
    "Agent.runner_id": "plugin:acme/tested/default",
    "Binding.event_types": "message.received",
    "ToolAddress.url": "https://example.org",
    "DeclaredKey.secret": "x" * 32,
    ".plugin_id": "acme/absent",
    "Filter.path": "conversation_id",
    "Filter.text": "x",
}
PLAIN = "x"
_DEEPEST = 3


def filled(descriptor: Descriptor) -> Any:
    """A request in which all that is required is set."""
    message = message_factory.GetMessageClass(descriptor)()
    fill(message)
    return message


def fill(message: Any) -> None:
    """Sets what the rules require in a message and in what it has."""
    for field in message.DESCRIPTOR.fields:
        if _is_required(field) and not _is_set(message, field):
            _set(message, field)
    for oneof in message.DESCRIPTOR.oneofs:
        if message.WhichOneof(oneof.name) is None and _requires(RULES.get(oneof.full_name, ())):
            _set(message, oneof.fields[0])


def text_paths(descriptor: Descriptor, deepest: int = _DEEPEST) -> Iterator[tuple[str, ...]]:
    """The paths of all texts that a message may have, in messages within it too."""
    for field in descriptor.fields:
        if field.message_type is None:
            if field.type == FieldDescriptor.TYPE_STRING:
                yield (field.name,)
        elif deepest > 1 and not field.message_type.full_name.startswith("google."):
            for path in text_paths(field.message_type, deepest - 1):
                yield (field.name, *path)


def with_text(request: Any, path: tuple[str, ...], text: str) -> Any:
    """A copy of a request with a text at a path; what the messages on the way need is set too."""
    copy = type(request)()
    copy.CopyFrom(request)
    place: Any = copy
    for name in path[:-1]:
        field = place.DESCRIPTOR.fields_by_name[name]
        if is_map(field):
            entries = getattr(place, name)
            _put(entries, field, path[-1], text)
            return copy
        if field.is_repeated:
            entries = getattr(place, name)
            place = entries[0] if len(entries) else entries.add()
        else:
            place = getattr(place, name)
            place.SetInParent()
        fill(place)
    field = place.DESCRIPTOR.fields_by_name[path[-1]]
    if field.is_repeated:
        getattr(place, path[-1])[:] = [text]
    else:
        setattr(place, path[-1], text)
    return copy


def _put(entries: Any, field: FieldDescriptor, part: str, text: str) -> None:
    assert field.message_type is not None
    if part == "key":
        value = field.message_type.fields_by_name["value"]
        if value.message_type is not None:
            fill(entries[text])
        else:
            entries[text] = PLAIN if value.type == FieldDescriptor.TYPE_STRING else 1
    else:
        entries[PLAIN] = text


def _requires(rules: Any) -> bool:
    return any(
        isinstance(rule, Required | Digest)
        or (isinstance(rule, Length | Count) and rule.minimum > 0)
        for rule in rules
    )


def _is_required(field: FieldDescriptor) -> bool:
    rules = RULES.get(field.full_name, ())
    return any(isinstance(rule, Required) for rule in rules) or (
        not field.has_presence and _requires(rules)
    )


def _is_set(message: Any, field: FieldDescriptor) -> bool:
    return any(each is field or each.name == field.name for each, _ in message.ListFields())


def _set(message: Any, field: FieldDescriptor) -> None:
    if field.message_type is not None:
        place = getattr(message, field.name)
        if is_map(field):
            return
        place = place.add() if field.is_repeated else place
        if not field.is_repeated:
            place.SetInParent()
        fill(place)
        return
    value = _value(field)
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def _value(field: FieldDescriptor) -> Any:
    for end, text in FORMS.items():
        if field.full_name.endswith(end):
            return text
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return "{}" if field.name.endswith("_json") else PLAIN
        case FieldDescriptor.TYPE_BYTES:
            return bytes(32)
        case FieldDescriptor.TYPE_BOOL:
            return True
        case FieldDescriptor.TYPE_ENUM:
            return 1
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_DOUBLE:
            return 1.0
        case _:
            return 1
