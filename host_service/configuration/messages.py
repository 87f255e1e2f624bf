"""Reads a mapping of YAML as a message of the contract, by the message's own description."""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar, cast

import yaml
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from host_service.configuration.document import DocumentReader, describe, join
from host_service.configuration.secrets import read_entry_value, read_secret
from host_service.durations import DURATION_FORM, parse_duration

MessageType = TypeVar("MessageType", bound=Message)

_JSON_SUFFIX = "_json"
_SECONDS_SUFFIX = "_seconds"
_WHOLE_NUMBERS = {FieldDescriptor.TYPE_INT32: 32, FieldDescriptor.TYPE_INT64: 64}
_LONGEST_SECONDS = 100 * 366 * 86_400

# What the contract calls "Set only by the host".
_HOST_FIELDS = frozenset({"revision", "updated_at", "has_api_key", "origin"})
# What the contract calls "Secret": a file says where they are, and never has them.
_SECRETS = frozenset({"runmesh.admin.v1.Model.api_key", "runmesh.admin.v1.DeclaredKey.secret"})
_ENTRY = "runmesh.admin.v1.SecretEntry"
# What the contract calls "Required": checked here because only here the line is known.
_REQUIRED = {
    "runmesh.admin.v1.Agent": ("id", "runner_id"),
    "runmesh.admin.v1.ApprovalRule": ("action",),
    "runmesh.admin.v1.ApprovalCondition": ("field", "equals"),
    "runmesh.admin.v1.Binding": ("id", "agent_id", "event_types"),
    "runmesh.admin.v1.BindingFilter": ("field", "equals"),
    "runmesh.admin.v1.Model": ("id", "kind", "provider", "model_name"),
    "runmesh.admin.v1.ToolServer": ("id",),
    "runmesh.admin.v1.ToolCommand": ("command",),
    "runmesh.admin.v1.ToolAddress": ("url",),
    "runmesh.admin.v1.KnowledgeBase": ("id",),
    "runmesh.admin.v1.Policy": ("workspace_id",),
    "runmesh.admin.v1.PluginSettings": ("plugin_id",),
    "runmesh.admin.v1.AllowanceOf": ("id", "allowance"),
    "runmesh.admin.v1.DeclaredKey": ("name", "role", "secret"),
}


def read_message(
    reader: DocumentReader, node: yaml.Node, path: str, make: Callable[[], MessageType]
) -> MessageType:
    """Reads a mapping as a message; what is wrong is left out of it and kept by the reader.

    Args:
        reader: Keeps the faults.
        node: The mapping.
        path: Where it stands in the document.
        make: Makes the empty message.
    """
    message = make()
    if isinstance(node, yaml.SequenceNode) and (only := _only_list(message)) is not None:
        # A choice is written as the list it is.
        _read_list(reader, message, only, node, path)
        return message
    fields = _fields(message)
    given: set[str] = set()
    for name, key, value in reader.entries(node, path):
        at = join(path, name)
        if name in _HOST_FIELDS:
            reader.fault(key, at, "is set by the host: leave it out")
            continue
        field = fields.get(name)
        if field is None:
            reader.unknown(key, path, name, list(fields))
            continue
        if field.name in given:
            reader.fault(key, at, "says again what the entry above says: leave one out")
            continue
        given.add(field.name)
        _read_field(reader, message, field, value, at)
    for name in _REQUIRED.get(message.DESCRIPTOR.full_name, ()):
        if name not in given and isinstance(node, yaml.MappingNode):
            reader.fault(node, join(path, name), "is required and missing")
    return message


def _only_list(message: Message) -> FieldDescriptor | None:
    """The field of a message that is nothing but a list, or None."""
    fields = cast("Descriptor", message.DESCRIPTOR).fields
    return fields[0] if len(fields) == 1 and fields[0].is_repeated else None


def _fields(message: Message) -> dict[str, FieldDescriptor]:
    """The names under which a file has the fields of a message."""
    fields: dict[str, FieldDescriptor] = {}
    # Two implementations of protobuf have two types for what is one.
    for field in cast("Descriptor", message.DESCRIPTOR).fields:
        if field.name in _HOST_FIELDS:
            continue
        fields[field.name.removesuffix(_JSON_SUFFIX)] = field
        if _is_duration(field):
            fields[field.name + _SECONDS_SUFFIX] = field
    return fields


def _read_field(
    reader: DocumentReader, message: Message, field: FieldDescriptor, node: yaml.Node, path: str
) -> None:
    if field.message_type is not None and field.message_type.full_name == _ENTRY:
        _read_entries(reader, message, field, node, path)
    elif field.is_repeated:
        _read_list(reader, message, field, node, path)
    elif _is_duration(field):
        _read_duration(reader, getattr(message, field.name), node, path)
    elif field.message_type is not None:
        nested = getattr(message, field.name)
        # Present even when nothing is in it: an empty choice is not the same as none.
        nested.SetInParent()
        nested.CopyFrom(read_message(reader, node, path, type(nested)))
    else:
        value = _single_value(reader, field, node, path)
        if value is not None:
            setattr(message, field.name, value)


def _read_list(
    reader: DocumentReader, message: Message, field: FieldDescriptor, node: yaml.Node, path: str
) -> None:
    values = getattr(message, field.name)
    for item_path, item in reader.items(node, path):
        if field.message_type is not None:
            new = values.add()
            new.CopyFrom(read_message(reader, item, item_path, type(new)))
            continue
        value = _single_value(reader, field, item, item_path)
        if value is not None:
            values.append(value)


def _read_entries(
    reader: DocumentReader, message: Message, field: FieldDescriptor, node: yaml.Node, path: str
) -> None:
    """Reads a mapping of names to values that are kept secret."""
    entries = getattr(message, field.name)
    for name, _, value in reader.entries(node, path):
        text = read_entry_value(reader, value, join(path, name))
        if text is not None:
            entries.add(name=name, value=text)


def _single_value(
    reader: DocumentReader, field: FieldDescriptor, node: yaml.Node, path: str
) -> str | bool | int | None:
    if field.enum_type is not None:
        return _enum_value(reader, field.enum_type, node, path)
    if field.full_name in _SECRETS:
        return read_secret(reader, node, path)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return reader.truth(node, path)
    if field.type in _WHOLE_NUMBERS:
        return _whole_number(reader, node, path, bits=_WHOLE_NUMBERS[field.type])
    if field.name.endswith(_JSON_SUFFIX):
        return _json_object(reader, node, path)
    return reader.text(node, path)


def _json_object(reader: DocumentReader, node: yaml.Node, path: str) -> str | None:
    if not isinstance(node, yaml.MappingNode):
        reader.fault(node, path, f"must be a mapping of names to values; got {describe(node)}")
        return None
    return reader.json(node, path)


def _whole_number(reader: DocumentReader, node: yaml.Node, path: str, *, bits: int) -> int | None:
    value = reader.number(node, path)
    if value is None:
        return None
    most = 2 ** (bits - 1) - 1
    if not isinstance(value, int) or not -most <= value <= most:
        reader.fault(node, path, f"must be a whole number of at most {most}; got {value}")
        return None
    return value


def _enum_value(
    reader: DocumentReader, enum: EnumDescriptor, node: yaml.Node, path: str
) -> int | None:
    text = reader.text(node, path)
    if text is None:
        return None
    prefix = enum.values[0].name.removesuffix("UNSPECIFIED")
    name = text.upper().removeprefix(prefix)
    values = {value.name.removeprefix(prefix): value.number for value in enum.values[1:]}
    if name in values:
        return values[name]
    known = ", ".join(value.lower() for value in values)
    reader.fault(node, path, f"must be one of {known}; got {text!r}")
    return None


def _read_duration(reader: DocumentReader, duration: Duration, node: yaml.Node, path: str) -> None:
    if path.endswith(_SECONDS_SUFFIX):
        seconds = reader.number(node, path)
        if seconds is None:
            return
        if not 0 <= seconds <= _LONGEST_SECONDS:
            reader.fault(node, path, f"must be 0 to {_LONGEST_SECONDS} seconds; got {seconds}")
            return
        duration.FromTimedelta(timedelta(seconds=seconds))
        return
    if not isinstance(node, yaml.ScalarNode):
        reader.fault(node, path, f"must be {DURATION_FORM}; got {describe(node)}")
        return
    try:
        duration.FromTimedelta(parse_duration(node.value))
    except ValueError:
        other = path.rpartition(".")[2] + _SECONDS_SUFFIX
        message = f"must be {DURATION_FORM}, or be called {other}; got {node.value!r}"
        reader.fault(node, path, message)


def _is_duration(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and kind.full_name == Duration.DESCRIPTOR.full_name
