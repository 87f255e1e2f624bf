"""Tests of `host_service.supervisor.output`."""

import asyncio
import logging
import os
import threading
import time

import pytest

from host_service.supervisor.output import (
    LINE_LIMIT_BYTES,
    TAIL_BYTES,
    TAIL_LINES,
    LineBudget,
    OutputStream,
    PipeReader,
    readable,
)


@pytest.fixture
def stream(caplog: pytest.LogCaptureFixture) -> OutputStream:
    caplog.set_level(logging.INFO, logger="runmesh.plugin")
    return OutputStream(plugin_id="acme/desk", name="stderr", budget=LineBudget())


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"plain", "plain"),
        (b"\xef\xbb\xbfafter a BOM\r", "after a BOM"),
        ("你好 😀\ttab".encode(), "你好 😀\ttab"),
        ("你好".encode("gbk"), "\ufffd\ufffd\ufffd"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x1b]8;;http://a\x1b\\y", "red xy"),
        (b"\x1b[2J\x1b(Bclear\x1bc", "clear"),
        (b"half \x1b[", "half "),
        (b"a\rb\x00c\x08d\x9b", "a\\x0db\\x00c\\x08d\ufffd"),
        ("forged\u2028line \u202etxt".encode(), "forged\\x2028line \\x202etxt"),
        (b"y" * (LINE_LIMIT_BYTES + 7), "y" * LINE_LIMIT_BYTES + " [7 bytes more]"),
    ],
)
def test_line_is_shown_without_what_could_harm(line: bytes, shown: str) -> None:
    assert readable(line) == shown


def test_lines_are_logged_whole_however_they_arrive(
    stream: OutputStream, caplog: pytest.LogCaptureFixture
) -> None:
    for byte in "eins\n你好\nlast".encode():
        stream.feed(bytes([byte]), now=0.0)
    assert caplog.messages == ["acme/desk: eins", "acme/desk: 你好"]
    stream.end(now=0.0)
    assert caplog.messages[-1] == "acme/desk: last"
    assert {record.__dict__["stream"] for record in caplog.records} == {"stderr"}


def test_line_without_an_end_is_kept_in_bounds_and_its_size_told(
    stream: OutputStream, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1000):
        stream.feed(b"z" * 1000, now=0.0)
    assert stream.tail() == "z" * LINE_LIMIT_BYTES + f" [{1_000_000 - LINE_LIMIT_BYTES} bytes more]"
    stream.feed(b"z\nnext\n", now=0.0)
    assert caplog.messages[0].endswith(f"z [{1_000_001 - LINE_LIMIT_BYTES} bytes more]")
    assert caplog.messages[1] == "acme/desk: next"


def test_flood_is_cut_to_the_budget_and_what_is_left_out_is_counted(
    stream: OutputStream, caplog: pytest.LogCaptureFixture
) -> None:
    stream.feed(b"".join(b"%d\n" % number for number in range(10_000)), now=100.0)
    assert len(caplog.messages) == 201
    assert caplog.messages[-1] == "acme/desk: 9800 lines left out of this log"
    stream.feed(b"more\n" * 100, now=101.0)
    assert len(caplog.messages) == 201 + 50 + 1
    stream.feed(b"more\n" * 100, now=101.0)
    stream.end(now=101.1)
    assert caplog.messages[-1] == "acme/desk: 100 lines left out of this log"


def test_tail_is_the_true_end_even_of_a_flood(stream: OutputStream) -> None:
    stream.feed(b"".join(b"%d\n" % number for number in range(10_000)), now=0.0)
    stream.feed(b"the very last", now=0.0)
    lines = stream.tail().splitlines()
    assert lines[-2:] == ["9999", "the very last"]
    assert len(lines) == TAIL_LINES


def test_tail_is_bounded_in_bytes_too(stream: OutputStream) -> None:
    stream.feed((b"w" * 3000 + b"\n") * 10, now=0.0)
    assert 0 < len(stream.tail()) <= TAIL_BYTES


async def test_pipe_that_floods_is_read_without_holding_up_the_loop(stream: OutputStream) -> None:
    reading, writing = os.pipe()
    reader = PipeReader(reading, stream)
    chunk = (b"x" * 99 + b"\n") * 10_000

    def flood() -> None:
        for _ in range(100):
            os.write(writing, chunk)
        os.write(writing, b"done\n")

    writer = threading.Thread(target=flood)
    writer.start()
    loop = asyncio.get_running_loop()
    longest = 0.0
    while writer.is_alive():
        before = loop.time()
        await asyncio.sleep(0.001)
        longest = max(longest, loop.time() - before)
    reader.drain()
    assert stream.tail().endswith("done")
    assert longest < 0.25
    os.close(writing)
    await asyncio.sleep(0.01)
    reader.close()


async def test_flood_is_read_no_faster_than_the_budget_allows(
    stream: OutputStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host_service.supervisor.output._BUDGET_BYTES", 128 * 1024)
    monkeypatch.setattr("host_service.supervisor.output._PERIOD_SECONDS", 0.02)
    reading, writing = os.pipe()
    reader = PipeReader(reading, stream)
    started = time.monotonic()
    await asyncio.to_thread(os.write, writing, b"x" * 128 * 1024 * 11)
    # Ten periods, by the loop's clock: that stands still within a turn, so that on a busy machine
    # a period may be shorter than it should. Without a budget all of it is read in no time.
    assert time.monotonic() - started >= 5 * 0.02
    os.close(writing)
    reader.close()
