"""An agent's configuration held against its runner's schema: every fault named, defaults filled in.

The configuration stays the text it came as: defaults are put into it as text, so that no number
loses a digit on its way to the runner.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import re2

from host_service.errors import FieldFault

_SELECTORS = frozenset({"llm-model-selector", "rerank-model-selector", "embedding-model-selector"})
_TEXTS = frozenset({"string", "text", "secret", "file"})
_LISTS_OF_IDS = frozenset({"knowledge-base-multi-selector", "tool-multi-selector"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigField:
    """One field of a configuration, as the manifest declares it.

    Attributes:
        name: The key.
        type: One of the contract's field types, or one that this host does not know.
        required: Whether a configuration without it is refused.
        default_json: The value used without one; None: there is no default.
        options: The values that a select may have.
        min: Smallest number.
        max: Largest number.
        max_length: Longest text in characters, most entries of a list.
        pattern: What the whole text must match, in RE2 syntax.
    """

    name: str
    type: str
    required: bool = False
    default_json: str | None = None
    options: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None
    max_length: int | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigSchema:
    """The fields of a runner's configuration."""

    fields: tuple[ConfigField, ...] = ()

    @property
    def secret_names(self) -> frozenset[str]:
        """The names of fields whose values are not shown."""
        return frozenset(field.name for field in self.fields if field.type == "secret")

    def faults(self, config_json: str, *, path: str = "config") -> list[FieldFault]:
        """Return every rule that a configuration breaks.

        Args:
            config_json: A JSON object.
            path: Where it stands; the paths of faults begin with it.
        """
        config: Mapping[str, Any] = json.loads(config_json)
        known = {field.name for field in self.fields}
        faults = [
            FieldFault(
                f"{path}.{name}",
                f"one of {', '.join(sorted(known)) or 'no fields'}",
                "an unknown field",
            )
            for name in config
            if name not in known
        ]
        for field in self.fields:
            if field.name in config:
                faults += [
                    FieldFault(f"{path}.{field.name}{below}", rule, got)
                    for below, rule, got in _value_faults(field, config[field.name])
                ]
            elif field.required and field.default_json is None:
                faults.append(FieldFault(f"{path}.{field.name}", "required", "not set"))
        return faults

    def fill(self, config_json: str) -> str:
        """Return a configuration with the defaults of what it does not set."""
        config: Mapping[str, Any] = json.loads(config_json)
        missing = [
            f"{json.dumps(field.name)}: {field.default_json}"
            for field in self.fields
            if field.name not in config and field.default_json is not None
        ]
        if not missing:
            return config_json
        body = config_json.rstrip()[:-1].rstrip()
        return f"{body}{', ' if config else ''}{', '.join(missing)}}}"


_Fault = tuple[str, str, str]


def _value_faults(field: ConfigField, value: object) -> Iterator[_Fault]:
    check = _CHECKS.get(field.type)
    # A type of a later version is passed on unchecked.
    return check(field, value) if check is not None else iter(())


def _text(field: ConfigField, value: object) -> Iterator[_Fault]:
    if not isinstance(value, str):
        yield "", "a text", _shape(value)
        return
    yield from _length(field, len(value), "characters")
    if field.pattern is not None and re2.fullmatch(field.pattern, value) is None:
        yield "", f"matching {field.pattern}", f"a text of {len(value)} characters"


def _number(field: ConfigField, value: object) -> Iterator[_Fault]:
    wanted, kinds = (
        ("a whole number", int) if field.type == "integer" else ("a number", (int, float))
    )
    if isinstance(value, bool) or not isinstance(value, kinds):
        yield "", wanted, _shape(value)
        return
    if field.min is not None and value < field.min:
        yield "", f"{field.min:g} or more", str(value)
    if field.max is not None and value > field.max:
        yield "", f"{field.max:g} or less", str(value)


def _boolean(_field: ConfigField, value: object) -> Iterator[_Fault]:
    if not isinstance(value, bool):
        yield "", "true or false", _shape(value)


def _select(field: ConfigField, value: object) -> Iterator[_Fault]:
    if not isinstance(value, str) or value not in field.options:
        yield "", f"one of {', '.join(field.options)}", _shape(value)


def _multi_select(field: ConfigField, value: object) -> Iterator[_Fault]:
    yield from _list_of(field, value, lambda entry: _select(field, entry))


def _prompt(field: ConfigField, value: object) -> Iterator[_Fault]:
    def entry_faults(entry: object) -> Iterator[_Fault]:
        if not isinstance(entry, dict) or not all(
            isinstance(entry.get(name), str) for name in ("role", "content")
        ):
            yield "", 'an object with the texts "role" and "content"', _shape(entry)

    yield from _list_of(field, value, entry_faults)


def _ids(field: ConfigField, value: object) -> Iterator[_Fault]:
    yield from _list_of(
        field, value, lambda entry: _text(ConfigField(name="", type="string"), entry)
    )


def _selector(_field: ConfigField, value: object) -> Iterator[_Fault]:
    if not isinstance(value, str):
        yield "", "an id, or an empty text for no choice", _shape(value)


def _fallback_selector(field: ConfigField, value: object) -> Iterator[_Fault]:
    if isinstance(value, str):
        return
    if not isinstance(value, dict) or not isinstance(value.get("primary"), str):
        yield "", 'an id, or {"primary": id, "fallbacks": [id...]}', _shape(value)
        return
    for below, rule, got in _ids(field, value.get("fallbacks", [])):
        yield f".fallbacks{below}", rule, got


def _list_of(
    field: ConfigField, value: object, entry_faults: Callable[[object], Iterator[_Fault]]
) -> Iterator[_Fault]:
    if not isinstance(value, list):
        yield "", "a list", _shape(value)
        return
    yield from _length(field, len(value), "entries")
    for i, entry in enumerate(value):
        for below, rule, got in entry_faults(entry):
            yield f"[{i}]{below}", rule, got


def _length(field: ConfigField, length: int, unit: str) -> Iterator[_Fault]:
    if field.max_length is not None and length > field.max_length:
        yield "", f"at most {field.max_length} {unit}", f"{length} {unit}"


def _shape(value: object) -> str:
    """Say what kind of value there is, never the value: it may be a secret."""
    if value is None:
        return "null"
    kinds = {bool: "true or false", int: "a number", float: "a number", dict: "an object"}
    if isinstance(value, str):
        return f"a text of {len(value)} characters"
    return f"a list of {len(value)} entries" if isinstance(value, list) else kinds[type(value)]


_CHECKS: Mapping[str, Callable[[ConfigField, object], Iterator[_Fault]]] = {
    **dict.fromkeys(_TEXTS, _text),
    **dict.fromkeys(_SELECTORS, _selector),
    **dict.fromkeys(_LISTS_OF_IDS, _ids),
    "integer": _number,
    "float": _number,
    "boolean": _boolean,
    "select": _select,
    "multi-select": _multi_select,
    "prompt-editor": _prompt,
    "model-fallback-selector": _fallback_selector,
}
