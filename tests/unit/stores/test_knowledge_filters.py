"""What filters find a document's metadata by."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores.errors import InvalidRecord, ValueTooLarge
from stores.knowledge_filters import metadata_digests, parse_filters

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)


def passes(metadata: str, filters: str) -> bool:
    digests = metadata_digests(metadata)
    return all(digests.intersection(alternatives) for alternatives in parse_filters(filters))


ALIKE = [
    ("1", "1.0"),
    ("1", "10e-1"),
    ("100", "1e2"),
    ("0", "-0"),
    ("0", "0.000"),
    ("0", "0e99"),
    ("-5", "-5.00"),
    ("123456789012345678901234567890", "123456789012345678901234567890.0"),
    ('"a"', '"\\u0061"'),
    ("null", "null"),
]
DIFFERENT = [
    ("1", '"1"'),
    ("1", "true"),
    ("0", "false"),
    ("0", "null"),
    ('""', "null"),
    ('"true"', "true"),
    ('"null"', "null"),
    ("1", "-1"),
    ("1", "10"),
    ("9007199254740993", "9007199254740992"),
    ("9223372036854775807", "9223372036854775806"),
    ("0.1", "0.10000000000000001"),
    ('"a"', '"A"'),
    ('"é"', '"e\\u0301"'),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_values_that_are_the_same_pass(one: str, other: str) -> None:
    assert passes(f'{{"x": {one}}}', f'{{"x": {other}}}')
    assert passes(f'{{"x": {other}}}', f'{{"x": {one}}}')


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_values_that_differ_do_not_pass(one: str, other: str) -> None:
    assert not passes(f'{{"x": {one}}}', f'{{"x": {other}}}')
    assert not passes(f'{{"x": {other}}}', f'{{"x": {one}}}')


@given(NAMES, SCALARS)
def test_every_value_finds_itself(name: str, value: object) -> None:
    text = json.dumps({name: value})
    assert passes(text, text)
    assert passes(text, json.dumps({name: [value, "another"]}))
    assert passes(json.dumps({name: ["another", value]}), text)
    assert not passes(text, json.dumps({name + "x": value}))


@given(SCALARS, SCALARS)
def test_two_values_are_the_same_as_in_python(one: object, other: object) -> None:
    is_same = one == other and (type(one) is bool) == (type(other) is bool)
    assert passes(json.dumps({"x": one}), json.dumps({"x": other})) == is_same


def test_name_does_not_reach_into_the_value() -> None:
    assert not passes('{"a": "b text c"}', '{"a text b": "c"}')


def test_all_names_must_pass_and_any_value_may() -> None:
    metadata = '{"a": 1, "b": [1, 2]}'
    assert passes(metadata, '{"a": 1, "b": 2}')
    assert passes(metadata, '{"b": [3, 1]}')
    assert not passes(metadata, '{"a": 1, "b": 3}')
    assert not passes(metadata, '{"a": []}')
    assert passes(metadata, "{}")
    assert parse_filters(None) == ()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", '{"a": {}}', '{"a": [[]]}', '{"a": 1e999}', '{"a": 1, "a": 2}'],
)
def test_what_is_no_flat_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        metadata_digests(text)
    assert caught.value.field == "metadata_json"
    with pytest.raises(InvalidRecord) as caught:
        parse_filters(text)
    assert caught.value.field == "filters_json"


def test_number_with_an_exponent_beyond_all_bounds_is_refused() -> None:
    text = '{"a": 1e-%s}' % ("9" * 30)
    with pytest.raises(InvalidRecord, match="exponent"):
        metadata_digests(text)


def test_bounds_are_told() -> None:
    many = json.dumps({f"n{number}": 1 for number in range(65)})
    with pytest.raises(InvalidRecord, match="at most 64 names"):
        parse_filters(many)
    with pytest.raises(InvalidRecord, match="at most 256 values"):
        parse_filters(json.dumps({"a": list(range(257))}))
    with pytest.raises(ValueTooLarge):
        metadata_digests(json.dumps({"a": "x" * 65_536}))
