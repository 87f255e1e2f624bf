"""Tests of `host_service.models.sse`: records as the HTML standard has them."""

import pytest

from host_service.models.sse import Record, RecordTooLarge, SseReader


def records(data: bytes, *, piece: int = 0) -> list[Record]:
    reader = SseReader(most_bytes=10_000)
    size = piece or max(len(data), 1)
    pieces = [data[begin : begin + size] for begin in range(0, len(data), size)]
    found = [record for each in pieces for record in reader.feed(each)]
    return [*found, *reader.finish()]


@pytest.mark.parametrize("piece", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"data: a\n\n", [Record("a")]),
        (b"data:a\r\rdata: b\r\n\r\ndata: c\n\n", [Record("a"), Record("b"), Record("c")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Record("a")]),
        (b"\xef\xbb\xbf\n\xef\xbb\xbfdata: a\n\n", []),
        (b"data: a\ndata:\ndata:  b\n\n", [Record("a\n\n b")]),
        (b": comment\n:\n\n\ndata: a\n\n", [Record("a")]),
        (b"retry: 10\n\nid: 3\n\ndata: a\n\n", [Record("a")]),
        (b"event: error\n\nevent: x\ndata: a\n\n", [Record("", "error"), Record("a", "x")]),
        (b"data\n\n", [Record("")]),
        (b"data: \xe4\xbd\xa0\xff\n\n", [Record("你\ufffd")]),
        (b"data: a\xe2\x80\xa8b\x0bc\x85\n\n", [Record("a\u2028b\x0bc\ufffd")]),
        (b"data: a", [Record("a", is_whole=False)]),
        (b"data: a\n", [Record("a", is_whole=False)]),
        (b"", []),
    ],
)
def test_records_of_bytes(data: bytes, found: list[Record], piece: int) -> None:
    assert records(data, piece=piece) == found


@pytest.mark.parametrize("data", [b"data: " + b"x" * 20_000, b"data: " + b"x\ndata:" * 10_000])
@pytest.mark.parametrize("piece", [0, 100])
def test_record_without_an_end_is_refused(data: bytes, piece: int) -> None:
    with pytest.raises(RecordTooLarge):
        records(data, piece=piece)
