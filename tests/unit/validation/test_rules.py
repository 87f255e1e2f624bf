"""Every rule of the table is enforced: each field is given values that break it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from host_service.validation import Violation, find_violations
from host_service.validation.rule_kinds import (
    CheckedApart,
    Count,
    Digest,
    Each,
    Json,
    LastPart,
    Length,
    MaxSize,
    Pattern,
    Range,
    Required,
    Rule,
    Unique,
)
from host_service.validation.rules import RULES
from host_service.validation.tree import is_map

_TABLE = [
    pytest.param(name, rule, id=f"{name.removeprefix('runmesh.')}: {rule.words}")
    for name, rules in RULES.items()
    for rule in rules
    if not isinstance(rule, CheckedApart)
]
_FIELDS = sorted({name.rpartition(".")[0] for name in RULES})


@pytest.mark.parametrize(("name", "rule"), _TABLE)
def test_value_that_breaks_the_rule_is_told(name: str, rule: Rule) -> None:
    for value in _values_that_break(rule):
        message, field = _message_of(name)
        _assign(message, field, value)
        told = [each for each in find_violations(message) if _is_at(each, field)]
        assert told, f"{value!r:.60} passed"
        # A value may break several rules of its field, of which the first is told.
        assert told[0].rule in {each.words for each in RULES[name]}
        assert len(told[0].got) < 100


@pytest.mark.parametrize("name", _FIELDS)
def test_zero_in_any_text_is_told_with_its_field(name: str) -> None:
    kind = descriptor_pool.Default().FindMessageTypeByName(name)
    for field in kind.fields:
        if field.type != field.TYPE_STRING or field.name.endswith("_json"):
            continue
        message = GetMessageClass(kind)()
        _assign(message, field.name, ["x", "a\0b"] if field.is_repeated else "a\0b")
        told = [each for each in find_violations(message) if each.rule == "free of U+0000"]
        assert [each.got for each in told] == ["U+0000 at character 2"]
        assert told[0].field == (f"{field.name}[1]" if field.is_repeated else field.name)


@pytest.mark.parametrize("name", _FIELDS)
def test_zero_in_any_map_is_told_with_its_field(name: str) -> None:
    kind = descriptor_pool.Default().FindMessageTypeByName(name)
    for field in kind.fields:
        if field.message_type is None or not is_map(field):
            continue
        for entry in ({"a\0": ""}, {"": "\0"}):
            message = GetMessageClass(kind)()
            getattr(message, field.name).update(entry)
            told = [each for each in find_violations(message) if each.rule == "free of U+0000"]
            assert [each.field for each in told] == [field.name]


@pytest.mark.parametrize("name", _FIELDS)
def test_negative_integer_is_told_with_its_field(name: str) -> None:
    kind = descriptor_pool.Default().FindMessageTypeByName(name)
    for field in kind.fields:
        if field.cpp_type in {field.CPPTYPE_INT32, field.CPPTYPE_INT64} and not field.is_repeated:
            message = GetMessageClass(kind)()
            setattr(message, field.name, -1)
            told = [each for each in find_violations(message) if each.field == field.name]
            assert [(each.rule, each.got) for each in told] == [("not negative", "-1")]


def _values_that_break(rule: Rule) -> Iterator[Any]:
    for kind, values in _BREAKING.items():
        if isinstance(rule, kind):
            yield from values(rule)
            return
    raise AssertionError(f"no value is known that breaks {rule}")


def _bad_lengths(rule: Length) -> Iterator[str]:
    yield "x" * (rule.maximum + 1)
    # As many characters as are allowed, and more bytes.
    yield "é" * rule.maximum
    if rule.minimum > 1:
        yield "x" * (rule.minimum - 1)


def _bad_json(rule: Json) -> Iterator[str]:
    yield from ("{", "{}}", '{"a":1,"a":2}', '"\\u0000"', "NaN", "\0")
    if rule.only_object:
        yield "[]"


def _bad_entries(rule: Each) -> Iterator[list[Any]]:
    for value in _values_that_break(rule.rule):
        yield ["message.received", value]


_BREAKING: dict[type, Callable[[Any], Iterable[Any]]] = {
    Required: lambda _: [None],
    Length: _bad_lengths,
    Pattern: lambda _: ["not a match", "!", "x" * 10_000, "message.received\n"],
    Json: _bad_json,
    Count: lambda rule: [["x"] * (rule.maximum + 1) if rule.maximum else None],
    Each: _bad_entries,
    Range: lambda rule: [rule.minimum - 1 if rule.maximum is None else rule.maximum + 1],
    MaxSize: lambda rule: [rule.limit + 1],
    Digest: lambda _: [b"\1" * 31, b"\1" * 33],
    LastPart: lambda _: ["something-else"],
    Unique: lambda rule: [[{rule.key: "a"}, {rule.key: "b"}, {rule.key: "a"}]],
}


def _message_of(name: str) -> tuple[Any, str]:
    kind, _, field = name.rpartition(".")
    message = GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(kind))()
    return message, field


def _assign(message: Any, name: str, value: Any) -> None:
    """Sets a field; a size becomes bytes or text of that size where the field is one of these."""
    if value is None:
        return
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.is_repeated and field.message_type is not None:
        for entry in value:
            getattr(message, name).add(**entry)
    elif field.is_repeated:
        getattr(message, name).extend(value)
    elif isinstance(value, int) and field.type == field.TYPE_BYTES:
        setattr(message, name, bytes(value))
    elif isinstance(value, int) and field.type == field.TYPE_STRING:
        setattr(message, name, '"' + "x" * (value - 2) + '"')
    else:
        setattr(message, name, value)


def _is_at(violation: Violation, field: str) -> bool:
    return violation.field.partition("[")[0] == field
