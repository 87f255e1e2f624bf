"""The rules of a runner's manifest that its fields' kinds do not say."""

import math
import re
from collections.abc import Mapping
from typing import Any

from runmesh.v1.manifest_pb2 import ConfigField, RunnerManifest

from runner_sdk._json import from_json
from runner_sdk._manifest_fields import Place

_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_CHOICES = frozenset({"select", "multi-select"})

# What a default must be, for the types whose values have one plain form.
_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "a text"),
    "text": ((str,), "a text"),
    "secret": ((str,), "a text"),
    "select": ((str,), "a text"),
    "integer": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
    "multi-select": ((list,), "a list"),
}


def check_runner(runner: RunnerManifest, place: Place) -> None:
    """Checks a runner's manifest.

    Raises:
        ManifestError: A rule is broken; it names the field.
    """
    if not runner.label.text:
        raise place.at("metadata.label").error("is missing: people choose a runner by it")
    for index, action in enumerate(runner.permissions.platform_actions):
        if not 1 <= len(action.encode()) <= 100:
            raise (
                place.at("permissions.platform_actions")
                .item(index)
                .error(f"must have 1 to 100 bytes, has {len(action.encode())}")
            )
    names: set[str] = set()
    for index, field in enumerate(runner.config_schema):
        here = place.at("config_schema").item(index)
        _check_field(field, here)
        if field.name in names:
            raise here.at("name").error(f"{field.name!r} is the name of a field before it")
        names.add(field.name)
    for index, field in enumerate(runner.config_schema):
        if field.HasField("shown_when") and field.shown_when.field not in names:
            raise (
                place.at("config_schema")
                .item(index)
                .at("shown_when.field")
                .error(f"{field.shown_when.field!r} is no field of the schema")
            )


def _check_field(field: ConfigField, place: Place) -> None:
    if not _FIELD_NAME.fullmatch(field.name):
        raise place.at("name").error(f"must match {_FIELD_NAME.pattern}, is {field.name!r}")
    if not 1 <= len(field.type.encode()) <= 100:
        raise place.at("type").error(f"must have 1 to 100 bytes, is {field.type!r}")
    if not field.label.text:
        raise place.at("label").error("is missing: people fill the field in by it")
    if field.type in _CHOICES and not field.options:
        raise place.at("options").error(f"is missing: a {field.type} needs choices")
    for index, option in enumerate(field.options):
        if not option.value or not option.label.text:
            raise place.at("options").item(index).error("needs a value and a label")
    _check_bounds(field, place.at("bounds"))
    if field.HasField("default_json"):
        _check_default(field, from_json(field.default_json), place.at("default"))


def _check_bounds(field: ConfigField, place: Place) -> None:
    bounds = field.bounds
    if not all(map(math.isfinite, (bounds.min, bounds.max))):
        raise place.error("must be finite")
    if bounds.HasField("min") and bounds.HasField("max") and bounds.min > bounds.max:
        raise place.at("min").error(f"{bounds.min:g} is more than max, {bounds.max:g}")
    if bounds.max_length < 0:
        raise place.at("max_length").error(f"must not be negative, is {bounds.max_length}")
    if bounds.HasField("pattern"):
        try:
            re.compile(bounds.pattern)
        except re.error as error:
            raise place.at("pattern").error(f"is no regular expression: {error}") from error


def _check_default(field: ConfigField, default: Any, place: Place) -> None:
    kind = _KINDS.get(field.type)
    if kind is None:
        return
    kinds, name = kind
    if not isinstance(default, kinds) or (isinstance(default, bool) and bool not in kinds):
        raise place.error(f"must be {name}, as the type is {field.type}; is {field.default_json}")
    choices = [option.value for option in field.options]
    if field.type in _CHOICES:
        chosen = default if isinstance(default, list) else [default]
        if any(choice not in choices for choice in chosen):
            raise place.error(f"must be among {', '.join(choices)}; is {field.default_json}")
    bounds = field.bounds
    if isinstance(default, int | float):
        low = bounds.HasField("min") and default < bounds.min
        if low or (bounds.HasField("max") and default > bounds.max):
            raise place.error(f"{default} is outside the field's bounds")
    length = len(default) if isinstance(default, str | list) else 0
    if bounds.HasField("max_length") and length > bounds.max_length:
        raise place.error(f"is longer than max_length, {bounds.max_length}")
