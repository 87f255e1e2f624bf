"""Tests of `host_service.runs.cursors`: a cursor is a place in one conversation, or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_service.identity import join_key
from host_service.runs.cursors import Cursors, ForeignCursor, MalformedCursor

HERE = Cursors.of(join_key("acme", "desk", "room", "topic"))
KEYS = st.tuples(*[st.text(st.characters(codec="utf-8"), max_size=4)] * 4)


@given(st.integers(1, 10**18 - 1), KEYS)
def test_cursor_leads_back_to_its_position(position: int, key: tuple[str, ...]) -> None:
    cursors = Cursors.of(join_key(*key))
    assert cursors.decode(cursors.encode(position)) == position
    assert len(cursors.encode(position)) < 64


@given(st.integers(1, 100), KEYS, KEYS)
def test_cursor_of_another_conversation_or_thread_is_known_as_such(
    position: int, one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    if one != other:
        with pytest.raises(ForeignCursor):
            Cursors.of(join_key(*one)).decode(Cursors.of(join_key(*other)).encode(position))


def test_cursor_says_nothing_of_its_conversation() -> None:
    assert not any(part in HERE.encode(7) for part in ("acme", "desk", "room", "topic"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "p7",
        "p7-",
        HERE.encode(7).upper(),
        HERE.encode(7) + " ",
        HERE.encode(7) + "\n",
        HERE.encode(7)[:-1],
        HERE.encode(7).replace("p7", "p0"),
        HERE.encode(7).replace("p7", "p-7"),
        HERE.encode(7).replace("p7", "p07"),
        HERE.encode(7).replace("p7", "p\u0667"),
        # More than a position can be.
        HERE.encode(10**18),
    ],
)
def test_what_is_no_cursor_is_refused_as_such(text: str) -> None:
    with pytest.raises(MalformedCursor):
        HERE.decode(text)
