"""Frames are made by joining encoded results; they must be what protobuf itself would write."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runmesh.v1.result_pb2 import RunResult
from runmesh.v1.run_pb2 import RunResponse

from runner_sdk._wire import FrameEncoder, encode_unchecked, varint


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (2**21, b"\x80\x80\x80\x01"),
    ],
)
def test_a_varint_is_seven_bits_a_byte_lowest_first(number: int, encoded: bytes) -> None:
    assert varint(number) == encoded


@settings(deadline=None, max_examples=50)
@given(texts=st.lists(st.text("aé世😀\n", max_size=300), min_size=1, max_size=20))
def test_joined_results_are_a_frame_that_protobuf_reads(texts: list[str]) -> None:
    encoder = FrameEncoder("run-1")
    frame = b"".join(encoder.encode_text(text, number) for number, text in enumerate(texts, 1))

    results = RunResponse.FromString(frame).results

    assert [result.message_delta.text for result in results] == texts
    assert [result.sequence for result in results] == list(range(1, len(texts) + 1))
    assert {result.run_id for result in results} == {"run-1"}
    assert all(result.HasField("message_delta") for result in results)


@pytest.mark.parametrize("size", [0, 1, 83, 84, 126, 127, 128, 1023, 1024, 16383, 16384, 3_000_000])
def test_a_result_of_any_size_is_read_back_whole(size: int) -> None:
    encoder = FrameEncoder("run-1")
    for _ in range(2):  # the second time the head is known
        [result] = RunResponse.FromString(encoder.encode_text("x" * size, 7)).results
        assert len(result.message_delta.text) == size


def test_the_run_id_is_the_runs_own_whatever_the_author_wrote() -> None:
    result = RunResult(run_id="somebody-elses", sequence=99)
    result.log.text = "hello"

    [read] = RunResponse.FromString(FrameEncoder("run-1").encode(result, 3)).results

    assert (read.run_id, read.sequence, read.log.text) == ("run-1", 3, "hello")


def test_the_same_object_can_be_encoded_twice() -> None:
    encoder = FrameEncoder("run-1")
    result = RunResult()
    result.log.text = "again"

    frame = encoder.encode(result, 1) + encoder.encode(result, 2)

    assert [read.sequence for read in RunResponse.FromString(frame).results] == [1, 2]


def test_an_unchecked_result_keeps_what_is_in_it() -> None:
    result = RunResult(run_id="somebody-elses", sequence=99)

    assert RunResponse.FromString(encode_unchecked(result)).results == [result]
