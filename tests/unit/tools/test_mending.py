"""Texts of tool servers made Unicode."""

import json

import pytest

from host_service.tools.mending import StreamMender, clean_json, clean_text, mend_escapes

CASES = [
    (rb'"\ud83d\ude00"', "😀"),
    (rb'"a\ud83db"', "a\ufffdb"),
    (rb'"\ude00\ud83d"', "\ufffd\ufffd"),
    (rb'"\uD83D\ud83d\uDE00"', "\ufffd😀"),
    (rb'"\\ud83d"', "\\ud83d"),
    (rb'"\\\ud83d"', "\\\ufffd"),
    (rb'"\u00e9\n\ud7ff"', "é\n\ud7ff"),
]


@pytest.mark.parametrize(("data", "text"), CASES)
def test_halves_of_pairs_are_replaced_and_nothing_else(data: bytes, text: str) -> None:
    assert json.loads(mend_escapes(data)) == text


@pytest.mark.parametrize(("data", "text"), CASES)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_stream_is_mended_wherever_it_is_cut(data: bytes, text: str, size: int) -> None:
    mender = StreamMender()
    pieces = [mender.feed(data[start : start + size]) for start in range(0, len(data), size)]
    assert json.loads(b"".join([*pieces, mender.end()])) == text


def test_long_stream_without_escapes_is_not_held_back() -> None:
    mender = StreamMender()
    assert mender.feed(b"x" * 1000) == b"x" * 1000
    assert mender.end() == b""


def test_values_become_what_can_be_stored_on_every_database() -> None:
    value = {"a\0": [float("nan"), float("inf"), 1.0, 2**70, None, True, "\ud83d\ude00 \ud83d"]}
    assert clean_json(value) == {"a\ufffd": [None, None, 1.0, 2**70, None, True, "😀 \ufffd"]}
    assert clean_text("plain 你好") == "plain 你好"
