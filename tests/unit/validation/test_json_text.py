"""JSON texts: what may stand, what is wrong with the others and where, and how they are mended."""

import json
import time

import pytest

from host_service.validation.json_scanner import scan
from host_service.validation.json_text import (
    find_json_fault,
    passes_quickly,
    repair_json_text,
    repair_text,
)

_SOUND = [
    "{}",
    "[]",
    "null",
    "true",
    ' \t\r\n{ "a" : [ 1 , -0.5e-10 , "" ] }\n',
    '{"a":{"a":{"a":1}}}',
    '[{"a":1},{"a":2}]',
    "9007199254740993",
    "-" + "9" * 308,
    "1e308",
    "1e-400",
    '"\\u0041\\ud83d\\ude00\\\\u0000\\\\ud800"',
    '"\\uD83D\\uDE00"',
    '"明天下午"',
    '"\U0001f600"',
    '"\x7f"',
    "[" * 64 + "]" * 64,
    '{"a":' * 64 + "1" + "}" * 64,
    json.dumps("[" * 1000),
]

_FAULTY = [
    ("", "the end of the text where a value should be at line 1, column 1"),
    (" \n ", "the end of the text where a value should be at line 2, column 2"),
    ("{", "the end of the text where a name in double quotes should be at line 1, column 2"),
    ('{"a":1', "the end of the text where a comma or `}` should be at line 1, column 7"),
    ("[1", "the end of the text where a comma or `]` should be at line 1, column 3"),
    ("[1,]", "something else than a value at line 1, column 4"),
    ("[,1]", "something else than a value at line 1, column 2"),
    ("[1 2]", "something else than a comma or `]` at line 1, column 4"),
    ("[1}", "something else than a comma or `]` at line 1, column 3"),
    ('{"a":1,}', "something else than a name in double quotes at line 1, column 8"),
    ("{'a':1}", "something else than a name in double quotes at line 1, column 2"),
    ('{"a" 1}', "something else than a colon at line 1, column 6"),
    ("{} {}", "something after the value at line 1, column 4"),
    ("01", "something after the value at line 1, column 2"),
    ("1.", "something after the value at line 1, column 2"),
    ("+1", "something else than a value at line 1, column 1"),
    ("truth", "something else than a value at line 1, column 1"),
    ("True", "something else than a value at line 1, column 1"),
    ("\ufeff{}", "something else than a value at line 1, column 1"),
    ("\u00a0{}", "something else than a value at line 1, column 1"),
    ("[\n  NaN]", "NaN or Infinity at line 2, column 3"),
    ('{"a":-Infinity}', "NaN or Infinity at line 1, column 6"),
    ("[1e309]", "a number beyond the range of a double at line 1, column 2"),
    ("9" * 310, "a number beyond the range of a double at line 1, column 1"),
    ("9" * 10_000, "a number beyond the range of a double at line 1, column 1"),
    ('{"a":1,"b":{"a":1,\n"a":2}}', "a duplicate name at line 2, column 1"),
    ('{"a":1,"\\u0061":2}', "a duplicate name at line 1, column 8"),
    ('["ab\tc"]', "an unescaped control character U+0009 at line 1, column 5"),
    ('"a\0b"', "an unescaped control character U+0000 at line 1, column 3"),
    ('"a\\x"', "an escape that JSON does not know at line 1, column 3"),
    ('"\\u00g0"', "an escape that JSON does not know at line 1, column 2"),
    ('"abc', "a string without an end at line 1, column 5"),
    ('["a\\u0000"]', "an escaped U+0000 at line 1, column 4"),
    ('{"\\u0000":1}', "an escaped U+0000 at line 1, column 3"),
    ('"\\ud83d"', "an escaped lone surrogate at line 1, column 2"),
    ('"\\ude00\\ud83d"', "an escaped lone surrogate at line 1, column 2"),
    ('"\\ud83d\\ud83d\\ude00"', "an escaped lone surrogate at line 1, column 2"),
    ('"\\\\\\u0000"', "an escaped U+0000 at line 1, column 4"),
    ('"\ud83d"', "a lone surrogate at line 1, column 2"),
    ("[" * 65 + "]" * 65, "nesting over 64 at line 1, column 65"),
    ('{"a":[' * 33, "nesting over 64 at line 1, column 193"),
]


@pytest.mark.parametrize("text", _SOUND)
def test_sound_text_passes(text: str) -> None:
    assert find_json_fault(text) is None
    assert scan(text) is None


@pytest.mark.parametrize(("text", "told"), _FAULTY)
def test_fault_is_told_with_its_place_and_without_the_text(text: str, told: str) -> None:
    assert str(find_json_fault(text)) == told
    assert not passes_quickly(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1]", "a list instead of an object at line 1, column 1"),
        ("\n null", "null instead of an object at line 2, column 2"),
        ('"{}"', "a string instead of an object at line 1, column 1"),
        ("-1", "a number instead of an object at line 1, column 1"),
        ("false", "false instead of an object at line 1, column 1"),
    ],
)
def test_value_of_another_kind_than_an_object_is_told(text: str, told: str) -> None:
    assert str(find_json_fault(text, only_object=True)) == told
    assert find_json_fault(text) is None


def test_object_passes_where_one_is_wanted_with_space_around_it() -> None:
    assert find_json_fault(' \n{"a":1} ', only_object=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        '{"a":' * 200_000,
        "9" * 1_000_000,
        "1e" + "9" * 1_000_000,
        '"' + "\\" * 1_000_001,
        '"' + "\\u0041" * 150_000,
        '"' + "\\ud83d" * 150_000 + '"',
        "[" + "[]," * 300_000,
        " " * 1_000_000,
        "-" * 1_000_000,
    ],
    ids=lambda text: f"{text[:6]!r}...",
)
def test_hostile_text_is_judged_in_time_that_grows_no_faster_than_it(text: str) -> None:
    started = time.process_time()
    assert find_json_fault(text) is not None
    # A hundredth of it on a machine with nothing else to do; what grows faster takes minutes.
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1,\n", "something that is not JSON at line 2, column 1"),
        ("[1]]", "something after the value at line 1, column 200004"),
        ('{"a":1,"a":2}', "a duplicate name"),
        ("[NaN]", "NaN or Infinity"),
        ("[1e999]", "a number beyond the range of a double"),
        ("[" + "9" * 400 + "]", "a number beyond the range of a double"),
        ("[" * 65 + "]" * 65, "nesting over 64"),
        ("[" * 5000, "nesting over 64"),
        ('"\\u0000"', "an escaped U+0000 at line 1, column 200002"),
        ('"\ud83d"', "a lone surrogate at line 1, column 200002"),
    ],
)
def test_fault_of_a_long_text_is_told_with_its_place_where_that_is_known(
    text: str, told: str
) -> None:
    assert str(find_json_fault(" " * 200_000 + text)) == told


@pytest.mark.parametrize("text", ["1." + "9" * 1_000_000, "[" + "[]," * 300_000 + "[]]"])
def test_long_text_without_a_fault_passes(text: str) -> None:
    assert find_json_fault(text) is None


def test_half_nested_text_in_a_deep_call_stack_is_still_judged() -> None:
    text = "[" * 60 + "]" * 60

    def descend(levels: int) -> object:
        return descend(levels - 1) if levels else find_json_fault(text)

    # Leaves the C parser too little stack for the nesting, which is within bounds.
    assert descend(850) is None


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ('{"a":"x\\u0000y"}', '{"a":"x\\ufffdy"}'),
        ('{"\\u0000":{"\\u0000":1}}', '{"\\ufffd":{"\\ufffd":1}}'),
        ('"\\\\u0000"', '"\\\\u0000"'),
        ('"\\\\\\u0000"', '"\\\\\\ufffd"'),
        ('"\\\\\\\\u0000"', '"\\\\\\\\u0000"'),
        ('"\\ud83d\\ude00"', '"\\ud83d\\ude00"'),
        ('"\\uD83D\\uDE00"', '"\\uD83D\\uDE00"'),
        ('"\\ud83d"', '"\\ufffd"'),
        ('"\\ude00"', '"\\ufffd"'),
        ('"\\ude00\\ud83d"', '"\\ufffd\\ufffd"'),
        ('"\\ud83d\\ud83d\\ude00"', '"\\ufffd\\ud83d\\ude00"'),
        ('"\\ud83dx\\ude00"', '"\\ufffdx\\ufffd"'),
        ('"\\ud83d\\\\ude00"', '"\\ufffd\\\\ude00"'),
        ('"a\0b"', '"a\ufffdb"'),
        ('"\ud83d\ude00 \ud83d"', '"\U0001f600 \ufffd"'),
        ("9007199254740993", "9007199254740993"),
        ('{"cut":"\\u00', '{"cut":"\\u00'),
    ],
)
def test_json_text_is_mended_where_it_must_be_and_nowhere_else(text: str, repaired: str) -> None:
    assert repair_json_text(text) == (repaired, text != repaired)


def test_of_names_that_become_the_same_by_the_repair_the_later_holds() -> None:
    text = '{"n":1.50,"\\u0000":9007199254740993,"\\ud800":{"明":2}}'
    repaired, changed = repair_json_text(text)
    assert changed
    assert repaired == '{"n":1.50,"\ufffd":{"明":2}}'
    assert find_json_fault(repaired) is None


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("plain", "plain"),
        ("明天", "明天"),
        ("a\0b\0", "a\ufffdb\ufffd"),
        ("\\u0000", "\\u0000"),
        ("\ud83d\ude00", "\U0001f600"),
        ("x\ud83d y\ude00", "x\ufffd y\ufffd"),
    ],
)
def test_text_is_mended(text: str, repaired: str) -> None:
    assert repair_text(text) == repaired
