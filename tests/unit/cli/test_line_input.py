"""Standard input becomes lines, whatever bytes are in it."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from host_service.cli import line_input
from host_service.cli.failures import CommandError
from host_service.cli.line_input import Line, read_lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        try:
            os.close(descriptor)
        except OSError:
            continue


async def lines_of(pipe: tuple[int, int], content: bytes) -> list[Line]:
    reader, writer = pipe
    await asyncio.to_thread(_write_and_close, writer, content)
    return [line async for line in read_lines(reader)]


def _write_and_close(descriptor: int, content: bytes) -> None:
    os.write(descriptor, content)
    os.close(descriptor)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        ("hello, 世界 👩‍👩‍👧\n".encode(), ["hello, 世界 👩‍👩‍👧"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"nul\x00 \x1b[m\n", ["nul\x00 \x1b[m"]),
    ],
)
async def test_lines_keep_their_text(
    pipe: tuple[int, int], content: bytes, texts: list[str]
) -> None:
    assert await lines_of(pipe, content) == [
        Line(number, text) for number, text in enumerate(texts, start=1)
    ]


async def test_bytes_that_are_not_utf8_are_replaced_and_told(pipe: tuple[int, int]) -> None:
    good, bad, after = await lines_of(pipe, b"ok\n\xc4\xe3\xba\xc3!\nok\n")
    assert (good.fault, after.fault) == ("", "")
    assert bad.text is not None
    assert bad.text.endswith("!")
    assert "\ufffd" in bad.text
    assert bad.fault == "is not UTF-8: what is not was replaced by U+FFFD"


async def test_a_line_that_is_too_long_is_dropped_and_the_next_one_read(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_input, "LONGEST_LINE_BYTES", 8)
    long, next_line = await lines_of(pipe, b"123456789" * 20 + b"\nshort\n")
    assert long == Line(1, None, "is longer than 8 bytes: it was not sent")
    assert next_line == Line(2, "short")


async def test_a_line_is_there_as_soon_as_it_is_whole(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    lines = read_lines(reader)
    for text in ("first", "second"):
        os.write(writer, f"{text}\n".encode())
        assert (await anext(lines)).text == text
    os.close(writer)
    with pytest.raises(StopAsyncIteration):
        await anext(lines)


async def test_input_that_cannot_be_read_is_a_clear_failure() -> None:
    folder = os.open("/", os.O_RDONLY)
    try:
        with pytest.raises(CommandError, match="cannot read standard input: Is a directory"):
            await anext(read_lines(folder))
    finally:
        os.close(folder)
