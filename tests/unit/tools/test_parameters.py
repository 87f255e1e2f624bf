"""Parameters of calls: every digit kept, held against schemas that nobody vouches for."""

import json
from collections.abc import Mapping
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from host_service.errors import InvalidArgument
from host_service.tools.parameters import check_parameters, find_trouble, read_parameters


def faults(schema: Mapping[str, Any], parameters: dict[str, Any]) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidArgument) as caught:
        check_parameters(json.dumps(schema), parameters)
    return [(each.field, each.rule, each.got) for each in caught.value.faults]


def test_whole_numbers_keep_their_digits_and_others_their_kind() -> None:
    read = read_parameters('{"line": 4475, "big": 9007199254740993, "huge": 1e2, "f": 1.0}')
    assert json.dumps(read) == '{"line": 4475, "big": 9007199254740993, "huge": 100.0, "f": 1.0}'
    assert read_parameters("") == {}


def test_number_with_more_digits_than_a_double_is_refused_where_it_stands() -> None:
    text = '{"a/b": [1.5, 3.14159265358979323846], "c": {"d": 1e-400, "e": -0.1234567890123456789}}'
    with pytest.raises(InvalidArgument) as caught:
        read_parameters(text)
    assert [each.field for each in caught.value.faults] == [
        "parameters_json/a~1b/1",
        "parameters_json/c/d",
        "parameters_json/c/e",
    ]
    assert "3.14" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["0.1", "-0.0", "0e9", "1.10", "1E5", "0.10000000000000001", "0.30000000000000004", "5e-324"],
)
def test_number_that_a_double_holds_is_taken_however_it_is_written(text: str) -> None:
    [number] = read_parameters(f'{{"n": {text}}}').values()
    assert type(number) is float
    assert repr(number) == repr(float(text))


def test_rounded_number_that_a_later_one_of_its_name_replaces_is_no_fault() -> None:
    assert read_parameters('{"n": 0.1234567890123456789, "n": 1.0}') == {"n": 1.0}


@pytest.mark.parametrize("text", ["[]", "7", "{", '{"a": NaN}', '{"a": 1e999}', '{"a":' * 9999])
def test_what_is_no_object_of_numbers_that_are_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        read_parameters(text)


def test_fault_names_place_rule_and_shape_and_never_the_value() -> None:
    schema = {
        "type": "object",
        "properties": {"a/b": {"type": "array", "items": {"enum": ["x"]}}},
        "required": ["needed"],
        "additionalProperties": False,
    }
    found = faults(schema, {"a/b": ["x", "topsecret"], "more": 1})
    assert sorted(field for field, _, _ in found) == [
        "parameters_json",
        "parameters_json",
        "parameters_json/a~1b/1",
    ]
    assert all("topsecret" not in rule + got for _, rule, got in found)
    assert any(rule == '"needed" is a required property (required)' for _, rule, _ in found)
    assert any("more" in rule for _, rule, _ in found)
    assert any(got == "a text of 9 characters" for _, _, got in found)


def test_newest_draft_holds_where_none_is_named_and_older_ones_where_they_are() -> None:
    tuple_now = {"properties": {"t": {"prefixItems": [{"type": "string"}]}}}
    assert faults(tuple_now, {"t": [1]})
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#", **tuple_now}
    check_parameters(json.dumps(draft_7), {"t": [1]})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "objekt"},
        {"type": "array"},
        {"properties": {"a": {"pattern": "("}}},
    ],
)
def test_schema_that_is_broken_or_elsewhere_is_told_and_never_fetched(
    schema: Mapping[str, Any],
) -> None:
    assert find_trouble(json.dumps(schema)).startswith("its schema cannot be used")


def test_schema_elsewhere_is_not_fetched_even_where_it_could_be(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text("{}")
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/schema.json"
            for place in (address, (tmp_path / "schema.json").as_uri()):
                assert find_trouble(json.dumps({"$ref": place}))
        finally:
            server.shutdown()
            thread.join()
    assert asked == []


def test_pattern_that_explodes_is_bounded() -> None:
    schema = {"properties": {"a": {"type": "string", "pattern": "^(?=(a+)+$)(a+)+b$"}}}
    assert faults(schema, {"a": "a" * 5000})


def test_references_within_a_schema_work() -> None:
    schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}
    check_parameters(json.dumps(schema), {"a": 2**80})
    assert faults(schema, {"a": "x"})[0][0] == "parameters_json/a"
