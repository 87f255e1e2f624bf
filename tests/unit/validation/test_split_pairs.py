"""Surrogate pairs cut between deltas: whole again, wherever they were cut and framed."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runmesh.v1 import result_pb2, run_pb2

from host_service.registry.frames import Frame, FrameReader
from host_service.validation.split_pairs import rejoin_pairs
from host_service.validation.wire_texts import Malformed

# What stands for one unit of UTF-16 until its bytes are put in: no protobuf takes them.
MARK = "~"


def units_of(text: str) -> list[bytes]:
    """Each unit of UTF-16 of a text, as a program writes it that knows no pairs."""
    data = text.encode("utf-16-le", "surrogatepass")
    codes = [int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2)]
    return [chr(code).encode("utf-8", "surrogatepass") for code in codes]


def raw_result(number: int, text: bytes, *, field: str = "text", message_id: str = "") -> bytes:
    """A frame of one delta whose text has any bytes."""
    delta = result_pb2.MessageDelta(message_id=message_id)
    setattr(delta, field, MARK * len(text))
    result = result_pb2.RunResult(run_id="r", sequence=number, message_delta=delta)
    frame = run_pb2.RunResponse(results=[result]).SerializeToString()
    return frame.replace(MARK.encode() * len(text), text) if text else frame


def read(frames: Sequence[bytes]) -> list[Frame]:
    reader = FrameReader()
    read = [reader.read(frame) for frame in frames]
    rest = reader.rest()
    return [*read, rest] if rest is not None else read


def results_of(frames: Sequence[Frame]) -> list[result_pb2.RunResult]:
    return [result for frame in frames if frame.response for result in frame.response.results]


def text_of(frames: Sequence[Frame], field: str = "text") -> str:
    return "".join(getattr(each.message_delta, field) for each in results_of(frames))


def mended(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


ANY_TEXT = st.text(st.characters(exclude_characters=MARK), max_size=12)


@given(
    text=st.one_of(ANY_TEXT, st.lists(st.sampled_from("a😀\ud83d\ude00你")).map("".join)),
    cuts=st.sets(st.integers(0, 40)),
    frame_cuts=st.sets(st.integers(0, 40)),
    field=st.sampled_from(["text", "reasoning_text"]),
)
def test_text_is_what_it_would_be_uncut(
    text: str, cuts: set[int], frame_cuts: set[int], field: str
) -> None:
    units = units_of(text)
    bounds = sorted({0, len(units), *(cut for cut in cuts if cut < len(units))})
    pieces = [b"".join(units[a:b]) for a, b in itertools.pairwise(bounds)]
    results = [raw_result(number, piece, field=field) for number, piece in enumerate(pieces, 1)]
    bounds = sorted({0, len(results), *(cut for cut in frame_cuts if cut < len(results))})
    frames = [b"".join(results[a:b]) for a, b in itertools.pairwise(bounds)]

    seen = read(frames)

    assert text_of(seen, field) == mended(text)
    assert [each.sequence for each in results_of(seen)] == list(range(1, len(results) + 1))


HIGH, LOW = units_of("😀")


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([raw_result(1, b"a" + HIGH), raw_result(2, LOW + b"b")], "a😀b"),
        ([raw_result(1, b"a" + HIGH) + raw_result(2, LOW + b"b")], "a😀b"),
        ([raw_result(1, b"a" + HIGH), raw_result(2, b"b")], "a\ufffdb"),
        ([raw_result(1, b"a" + HIGH)], "a\ufffd"),
        ([raw_result(1, HIGH), raw_result(2, HIGH), raw_result(3, LOW)], "\ufffd😀"),
        ([raw_result(1, LOW + b"a")], "\ufffda"),
        ([raw_result(1, HIGH), b"", raw_result(2, LOW)], "😀"),
    ],
    ids=["two frames", "one frame", "lone", "at the end", "twice", "second alone", "empty between"],
)
def test_halves_are_joined_or_replaced(frames: list[bytes], text: str) -> None:
    seen = read(frames)
    assert text_of(seen) == text
    assert bool([path for frame in seen for path in frame.mended]) == ("\ufffd" in text)


def test_halves_of_two_messages_are_no_pair() -> None:
    seen = read([raw_result(1, HIGH, message_id="m1") + raw_result(2, LOW, message_id="m2")])
    assert [each.message_delta.text for each in results_of(seen)] == ["\ufffd", "\ufffd"]


def test_half_waits_for_one_frame_and_no_longer() -> None:
    reader = FrameReader()
    first, second = reader.read(raw_result(1, HIGH)), reader.read(raw_result(2, b"b"))
    assert results_of([first]) == []
    assert text_of([second]) == "\ufffdb"
    assert reader.rest() is None


def test_what_else_is_in_a_frame_stays() -> None:
    unknown = b"\xc0\x3e\x01"
    frame, held = rejoin_pairs(raw_result(1, b"a" + HIGH) + raw_result(2, LOW) + unknown)
    assert frame.endswith(unknown)
    assert held == b""
    assert run_pb2.RunResponse.FromString(frame).results[0].message_delta.text == "a😀"


def test_bytes_that_are_no_frame_are_said_to_be_none() -> None:
    with pytest.raises(Malformed):
        rejoin_pairs(b"\x0a\xff")
    reader = FrameReader()
    reader.read(raw_result(1, HIGH))
    assert reader.read(b"\x0a\xff").response is None
    assert text_of([frame for frame in [reader.rest()] if frame]) == "\ufffd"
