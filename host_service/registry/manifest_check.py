"""What a runner's manifest must keep to, rule by rule; one that does not costs only itself."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from runmesh.v1 import manifest_pb2

from host_service.registry.records import PROTOCOL_VERSIONS, ManifestFault

#: The types of configuration fields that a host knows how to check.
KNOWN_FIELD_TYPES = frozenset(
    {
        "string",
        "text",
        "secret",
        "integer",
        "float",
        "boolean",
        "select",
        "multi-select",
        "json",
        "file",
        "prompt-editor",
        "llm-model-selector",
        "model-fallback-selector",
        "rerank-model-selector",
        "embedding-model-selector",
        "knowledge-base-multi-selector",
        "tool-multi-selector",
    }
)

_ID_PART = r"[a-z0-9][a-z0-9._-]{0,63}"
_RUNNER_ID = re.compile(rf"plugin:({_ID_PART}/{_ID_PART})/({_ID_PART})")
_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_JSON_DEPTH = 64
_METADATA_ENTRIES, _METADATA_KEY_BYTES, _METADATA_VALUE_BYTES = 64, 128, 1024

_Rule = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ManifestCheck:
    """What became of the manifests of one process.

    Attributes:
        accepted: Those that keep the rules.
        faults: Each rule that one of the others breaks.
        warnings: What was accepted but not understood, for the log.
    """

    accepted: tuple[manifest_pb2.RunnerManifest, ...]
    faults: tuple[ManifestFault, ...]
    warnings: tuple[str, ...]


def check_manifests(
    plugin_id: str, manifests: Iterable[manifest_pb2.RunnerManifest]
) -> ManifestCheck:
    """Checks each manifest by itself, and that no two have one id: the first keeps it."""
    accepted: dict[str, manifest_pb2.RunnerManifest] = {}
    faults: list[ManifestFault] = []
    warnings: list[str] = []
    for manifest in manifests:
        broken = list(_broken_rules(plugin_id, manifest))
        if manifest.id in accepted:
            broken.append(
                ("id", f"must be unique within the plugin, and {manifest.id!r} came before")
            )
        if broken:
            shown_id = manifest.id[:255]
            faults += [ManifestFault(plugin_id, shown_id, field, rule) for field, rule in broken]
            continue
        accepted[manifest.id] = manifest
        warnings += [f"{manifest.id}: {field} {rule}" for field, rule in _not_understood(manifest)]
    return ManifestCheck(tuple(accepted.values()), tuple(faults), tuple(warnings))


def _broken_rules(plugin_id: str, manifest: manifest_pb2.RunnerManifest) -> Iterator[_Rule]:
    yield from _identity(plugin_id, manifest)
    yield from _label("label", manifest, manifest.label)
    yield from _bytes("version", manifest.version, 1, 64)
    if manifest.protocol_version not in PROTOCOL_VERSIONS:
        yield (
            "protocol_version",
            f"must be {' or '.join(PROTOCOL_VERSIONS)}, got {manifest.protocol_version[:64]!r}",
        )
    for index, action in enumerate(manifest.permissions.platform_actions):
        yield from _bytes(f"permissions.platform_actions[{index}]", action, 1, 100)
    yield from _metadata(manifest)
    yield from _config_schema(manifest)
    for path, value in _texts(manifest):
        if "\0" in value:
            yield path, "must not contain U+0000"


def _identity(plugin_id: str, manifest: manifest_pb2.RunnerManifest) -> Iterator[_Rule]:
    match = _RUNNER_ID.fullmatch(manifest.id)
    if match is None:
        form = f"plugin:author/name/runner, each part matching {_ID_PART}"
        yield "id", f"must be {form}, got {manifest.id[:255]!r}"
        return
    if match[1] != plugin_id:
        yield "id", f"must be of the plugin {plugin_id!r}, got {match[1]!r}"
    if manifest.name != match[2]:
        yield "name", f"must be the last part of the id, {match[2]!r}, got {manifest.name[:64]!r}"


def _metadata(manifest: manifest_pb2.RunnerManifest) -> Iterator[_Rule]:
    count = len(manifest.metadata)
    if count > _METADATA_ENTRIES:
        yield "metadata", f"must have at most {_METADATA_ENTRIES} entries, got {count}"
    for key, value in manifest.metadata.items():
        yield from _bytes(f"metadata[{key[:32]!r}] (key)", key, 1, _METADATA_KEY_BYTES)
        yield from _bytes(f"metadata[{key[:32]!r}]", value, 0, _METADATA_VALUE_BYTES)


def _config_schema(manifest: manifest_pb2.RunnerManifest) -> Iterator[_Rule]:
    names = [field.name for field in manifest.config_schema]
    for index, field in enumerate(manifest.config_schema):
        path = f"config_schema[{index}]"
        if _FIELD_NAME.fullmatch(field.name) is None:
            yield f"{path}.name", f"must match {_FIELD_NAME.pattern}, got {field.name[:64]!r}"
        elif names.index(field.name) != index:
            yield f"{path}.name", f"must be unique, and {field.name!r} came before"
        yield from _bytes(f"{path}.type", field.type, 1, 100)
        yield from _label(f"{path}.label", field, field.label)
        if field.HasField("default_json"):
            yield from _json(f"{path}.default_json", field.default_json)
        yield from _options(path, field)
        yield from _bounds(f"{path}.bounds", field.bounds)
        if field.HasField("shown_when"):
            if field.shown_when.field not in names or field.shown_when.field == field.name:
                yield (
                    f"{path}.shown_when.field",
                    f"must name another field, got {field.shown_when.field[:64]!r}",
                )
            yield from _json(f"{path}.shown_when.equals_json", field.shown_when.equals_json)


def _options(path: str, field: manifest_pb2.ConfigField) -> Iterator[_Rule]:
    if field.type in {"select", "multi-select"} and not field.options:
        yield f"{path}.options", f"must have at least one choice for type {field.type!r}, got none"
    values = [option.value for option in field.options]
    for index, value in enumerate(values):
        yield from _bytes(f"{path}.options[{index}].value", value, 1, 255)
        if values.index(value) != index:
            yield (
                f"{path}.options[{index}].value",
                f"must be unique, and {value[:64]!r} came before",
            )


def _bounds(path: str, bounds: manifest_pb2.ConfigBounds) -> Iterator[_Rule]:
    if bounds.HasField("min") and bounds.HasField("max") and not bounds.min <= bounds.max:
        yield path, f"must have min at most max, got {bounds.min} and {bounds.max}"
    if bounds.HasField("max_length") and bounds.max_length < 0:
        yield f"{path}.max_length", f"must be 0 or more, got {bounds.max_length}"


def _label(path: str, owner: Message, label: Message) -> Iterator[_Rule]:
    name = path.rpartition(".")[2]
    texts = getattr(label, "text", {})
    if not owner.HasField(name) or not any(text.strip() for text in texts.values()):
        yield path, "must have a text in at least one language, got none"


def _bytes(path: str, value: str, least: int, most: int) -> Iterator[_Rule]:
    size = len(value.encode())
    if not least <= size <= most:
        yield path, f"must have {least} to {most} bytes, got {size}"


def _json(path: str, text: str) -> Iterator[_Rule]:
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique_names)
    except (ValueError, RecursionError) as error:
        yield path, f"must be one JSON value: {error}"
        return
    if _deeper_than(value, _JSON_DEPTH):
        yield path, f"must be nested at most {_JSON_DEPTH} deep"


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")


def _unique_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object has a name twice")
    return value


def _deeper_than(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper_than(item, levels - 1) for item in inside)


def _not_understood(manifest: manifest_pb2.RunnerManifest) -> Iterator[_Rule]:
    for index, field in enumerate(manifest.config_schema):
        if field.type not in KNOWN_FIELD_TYPES:
            yield (
                f"config_schema[{index}].type",
                f"{field.type!r} is not known to this host; its values are passed on unchecked",
            )
    for path, enum, number in _enum_numbers(manifest):
        if number not in enum.values_by_number:
            yield path, f"has the number {number}, which this host does not know: it grants nothing"
    for path, number in _unknown_fields(manifest):
        yield path, f"has field {number}, which this host does not know: it means nothing here"


def _texts(message: Message, path: str = "") -> Iterator[tuple[str, str]]:
    for field, where, value in _values(message, path):
        if field.type == FieldDescriptor.TYPE_STRING:
            yield where, value
        elif isinstance(value, Message):
            yield from _texts(value, f"{where}.")


def _enum_numbers(message: Message, path: str = "") -> Iterator[tuple[str, EnumDescriptor, int]]:
    for field, where, value in _values(message, path):
        if field.enum_type is not None:
            yield where, field.enum_type, value
        elif isinstance(value, Message):
            yield from _enum_numbers(value, f"{where}.")


def _unknown_fields(message: Message, path: str = "") -> Iterator[tuple[str, int]]:
    # Its stub lacks what makes it iterable.
    unknown: Any = UnknownFieldSet(message)
    for number in sorted({each.field_number for each in unknown}):
        yield path or "it", number
    for _, where, value in _values(message, f"{path}." if path else ""):
        if isinstance(value, Message):
            yield from _unknown_fields(value, where)


def _values(message: Message, path: str) -> Iterator[tuple[FieldDescriptor, str, Any]]:
    """Yields every single value that is set: of fields, of lists, and of maps (keys too)."""
    for field, content in message.ListFields():
        where = f"{path}{field.name}"
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            for key, value in content.items():
                yield entry.fields_by_name["key"], where, key
                yield entry.fields_by_name["value"], f"{where}[{str(key)[:32]!r}]", value
        elif field.is_repeated:
            for index, value in enumerate(content):
                yield field, f"{where}[{index}]", value
        else:
            yield field, where, content
