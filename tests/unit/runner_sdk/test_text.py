"""Halves of surrogate pairs are joined where the pair comes together, and replaced where not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner_sdk._text import Delta, TextMender, mend


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("plain 世界 😀", "plain 世界 😀"),
        ("\ud83d\ude00", "😀"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00a", "\ufffda"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
    ],
)
def test_pairs_are_joined_and_lone_halves_replaced(text: str, mended: str) -> None:
    assert mend(text) == mended


@settings(deadline=None, max_examples=50)
@given(st.text("aé世😀\n\u200d"))
def test_sound_text_is_left_alone(text: str) -> None:
    assert mend(text) == text


def test_a_pair_cut_between_two_deltas_is_joined() -> None:
    mender = TextMender()

    first = mender.mend(Delta("a\ud83d"))
    second = mender.mend(Delta("\ude00b"))

    assert (first.text, second.text) == ("a", "😀b")
    assert not mender


def test_a_half_whose_other_half_does_not_come_is_replaced() -> None:
    mender = TextMender()

    assert mender.mend(Delta("a\ud83d")).text == "a"
    assert mender.mend(Delta("b")).text == "\ufffdb"


def test_halves_of_different_messages_never_join() -> None:
    mender = TextMender()
    mender.mend(Delta("\ud83d", message_id="one"))
    mender.mend(Delta("\ud83d", reasoning=True, message_id="one"))

    assert mender.mend(Delta("\ude00", message_id="two")).text == "\ufffd"
    assert mender.release() == [
        Delta("\ufffd", message_id="one"),
        Delta("\ufffd", reasoning=True, message_id="one"),
    ]
    assert not mender


@settings(deadline=None, max_examples=50)
@given(st.text("a世😀\ud83d\ude00\ude01", max_size=12), st.integers(0, 12))
def test_cutting_a_text_anywhere_changes_nothing(text: str, cut: int) -> None:
    mender = TextMender()
    pieces = [mender.mend(Delta(text[:cut])), mender.mend(Delta(text[cut:])), *mender.release()]

    assert "".join(piece.text for piece in pieces) == mend(text)
