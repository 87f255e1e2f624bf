"""Arguments of tools, found in messages."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_service.rehearsal.arguments import fill_arguments


def _filled(properties: dict[str, Any], text: str, **schema: Any) -> Any:
    whole = {"type": "object", "properties": properties, "required": [*properties], **schema}
    filled = fill_arguments(whole, text)
    assert filled is not None
    return json.loads(filled)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "take 3 of them", 3),
        ({"type": "integer"}, "把12加起来", 12),
        ({"type": "integer", "maximum": 10}, "take 300", 10),
        ({"type": "integer", "minimum": 5}, "take none", 5),
        ({"type": "integer", "default": 7}, "take some", 7),
        ({"type": "number"}, "it is -2.5 degrees", -2.5),
        ({"type": ["number", "null"]}, "1e3 of them", 1000.0),
        ({"type": "string"}, 'say "good morning" to all', "good morning"),
        ({"type": "string"}, "翻译「你好」", "你好"),
        ({"type": "string"}, "don't stop", "don't stop"),
        ({"type": "string", "maxLength": 5}, "count these", "count"),
        ({"type": "string", "pattern": "^[A-Z]{3}$"}, "from EUR please", "EUR"),
        ({"type": "string", "format": "uri"}, "read https://example.org/a?b=1 now",
         "https://example.org/a?b=1"),
        ({"enum": ["read_only", "read_write"]}, "open it read write", "read_write"),
        ({"enum": ["上海", "北京"]}, "北京怎么样", "北京"),
        ({"const": 4}, "anything", 4),
        ({"type": "boolean"}, "yes", False),
        ({"type": "array", "items": {"type": "integer"}}, "sum 1, 2 and 3", [1, 2, 3]),
        ({"type": "array", "items": {"type": "string"}}, "join 'a' and 'b'", ["a", "b"]),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "take 4", 4),
        ({"$ref": "#/$defs/Amount"}, "take 6", 6),
        ({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
         "at 8", {"x": 8}),
    ],
)  # fmt: skip
def test_a_value_is_found_for_a_schema(schema: dict[str, Any], text: str, value: object) -> None:
    defs = {"Amount": {"type": "integer"}}

    assert _filled({"value": schema}, text, **{"$defs": defs}) == {"value": value}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("city", "How is it in Rio de Janeiro or Paris?", "Rio"),
        ("expression", "what is (2 + 3) * 4, please", "(2 + 3) * 4"),
        ("file_path", "open docs/host.md now", "docs/host.md"),
        ("email", "write to a.b@example.org", "a.b@example.org"),
        ("start_date", "from 2026-11-30 on", "2026-11-30"),
    ],
)
def test_the_name_of_a_property_says_what_it_is(name: str, text: str, value: str) -> None:
    assert _filled({name: {"type": "string"}}, text) == {name: value}


def test_each_number_and_each_quote_is_taken_once() -> None:
    properties = {"from": {"type": "string"}, "to": {"type": "string"}, "n": {"type": "integer"}}

    assert _filled(properties, "move 5 from 'here' to 'there'") == {
        "from": "here", "to": "there", "n": 5
    }  # fmt: skip


def test_what_may_be_left_out_is_unless_the_message_has_it() -> None:
    schema = {
        "type": "object",
        "properties": {"unit": {"enum": ["km", "miles"]}, "note": {"type": "string"}},
    }

    assert fill_arguments(schema, "how far in miles") == '{"unit": "miles"}'
    assert fill_arguments(schema, "how far") == "{}"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required": ["a"], "properties": {"a": {"not": {}}}},
        {"type": "string"},
        {"$ref": "http://127.0.0.1:9/elsewhere"},
    ],
)
def test_what_cannot_be_filled_is_none(schema: dict[str, Any]) -> None:
    assert fill_arguments(schema, "hello") is None


def test_a_schema_that_refers_to_itself_comes_to_an_end() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}
    fill_arguments({"$ref": "#/$defs/n", "$defs": {"n": node}}, "hello")


_SIMPLE = st.sampled_from(
    [
        {"type": "integer", "minimum": -3, "maximum": 3},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "minLength": 2, "maxLength": 6},
        {"type": "boolean"},
        {"enum": ["a", 1, None]},
        {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3},
        {"type": ["string", "null"]},
    ]
)


@given(st.dictionaries(st.text(max_size=8), _SIMPLE, max_size=5), st.text(max_size=60))
def test_what_is_filled_is_valid_and_the_same_again(properties: dict[str, Any], text: str) -> None:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    filled = fill_arguments(schema, text)

    assert filled is not None
    assert jsonschema_rs.is_valid(schema, json.loads(filled))
    assert filled == fill_arguments(schema, text)
