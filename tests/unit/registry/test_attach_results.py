"""Messages of attached runners, whatever is in them."""

import pytest
from runmesh.v1 import attach_pb2, result_pb2, run_pb2

from host_service.registry.attach_results import UpResults, read_up
from host_service.registry.frames import FrameReader
from host_service.validation.wire_texts import Malformed

RUN = "run-1"


def up(*results: result_pb2.RunResult) -> bytes:
    message = attach_pb2.AttachResults(run_id=RUN, results=results)
    return attach_pb2.AttachRequest(results=message).SerializeToString()


def delta(text: str, sequence: int = 1) -> result_pb2.RunResult:
    return result_pb2.RunResult(
        run_id=RUN, sequence=sequence, message_delta=result_pb2.MessageDelta(text=text)
    )


def results(data: bytes) -> UpResults:
    read = read_up(data)
    assert isinstance(read, UpResults)
    return read


def test_results_are_the_frame_that_a_call_would_have_brought() -> None:
    sent = [delta("a"), delta("b", 2)]
    called = run_pb2.RunResponse(results=sent).SerializeToString()
    read = results(up(*sent))
    assert (read.run_id, read.count) == (RUN, 2)
    assert read.frame(FrameReader()) == FrameReader().read(called)


def test_what_no_version_knows_survives() -> None:
    later = delta("a")
    later.MergeFromString(b"\xc0\x3e\x01")
    frame = results(up(later)).frame(FrameReader())
    assert frame.response is not None
    assert frame.response.results[0].SerializeToString() == later.SerializeToString()


def test_zero_byte_is_a_reason_to_look_closely() -> None:
    assert results(up(delta("a\0"))).frame(FrameReader()).suspicious
    assert not results(up(delta("a"))).frame(FrameReader()).suspicious


def test_text_that_is_no_unicode_is_mended_as_in_a_call() -> None:
    data = up(delta("MARK")).replace(b"MARK", b"M\xffRK")
    read = results(data)
    assert (read.run_id, read.count) == (RUN, 1)
    frame = read.frame(FrameReader())
    assert frame.response is not None
    assert frame.response.results[0].message_delta.text == "M�RK"
    assert frame.mended


def test_pair_that_was_cut_in_two_messages_is_whole() -> None:
    reader = FrameReader()
    first = results(up(delta("AAA")).replace(b"AAA", b"\xed\xa0\xbd")).frame(reader)
    second = results(up(delta("BBB", 2)).replace(b"BBB", b"\xed\xb8\x80")).frame(reader)
    told = [frame.response for frame in (first, second)]
    text = "".join(
        each.message_delta.text for response in told if response for each in response.results
    )
    assert text == "\N{GRINNING FACE}"


def test_whole_message_behind_half_a_pair_goes_the_same_way() -> None:
    reader = FrameReader()
    results(up(delta("AAA")).replace(b"AAA", b"\xed\xa0\xbd")).frame(reader)
    frame = results(up(delta("b", 2))).frame(reader)
    assert frame.response is not None
    assert [each.sequence for each in frame.response.results] == [1, 2]


def test_bytes_that_are_no_results_are_the_fault_of_the_run_they_name() -> None:
    named = attach_pb2.AttachResults(run_id=RUN).SerializeToString() + b"\x0b\xff\xff"
    read = results(b"\x12" + bytes([len(named)]) + named)
    assert (read.run_id, read.count) == (RUN, 1)
    assert read.frame(FrameReader()).response is None


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x12\x03\x12\xff\xff", b"\x0a\x02\x0a\xff"])
def test_bytes_that_name_no_run_are_no_message(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_up(data)


def test_all_else_is_read_as_it_is() -> None:
    ended = attach_pb2.AttachRequest(run_ended=attach_pb2.AttachRunEnded(run_id=RUN))
    assert read_up(ended.SerializeToString()) == ended
    assert read_up(b"") == attach_pb2.AttachRequest()
