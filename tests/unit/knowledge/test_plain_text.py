"""Bytes become text in an encoding that is known, or not at all."""

import codecs

import pytest

from host_service.knowledge.errors import DocumentUnreadable
from host_service.knowledge.plain_text import decode, read_plain_text

TEXT = "Grüße, 你好 🙂\r\n"


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode(),
        codecs.BOM_UTF8 + TEXT.encode(),
        codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
        codecs.BOM_UTF32_LE + TEXT.encode("utf-32-le"),
        codecs.BOM_UTF32_BE + TEXT.encode("utf-32-be"),
    ],
    ids=["UTF-8", "UTF-8 with mark", "UTF-16 LE", "UTF-16 BE", "UTF-32 LE", "UTF-32 BE"],
)
def test_text_is_decoded_by_its_mark_or_as_utf_8(content: bytes) -> None:
    assert decode(content) == TEXT


def test_encoding_that_the_sender_names_is_used() -> None:
    assert decode("你好".encode("gb18030"), charset="GB18030") == "你好"


@pytest.mark.parametrize("charset", ["", "no-such-encoding", "base64", "a\0b", "x" * 300])
def test_other_bytes_are_refused_rather_than_guessed(charset: str) -> None:
    with pytest.raises(DocumentUnreadable, match=r"not text in UTF-8 \(byte 0 is not\): save it"):
        decode("你好".encode("gb18030"), charset=charset)


def test_half_a_pair_in_utf_16_is_refused() -> None:
    with pytest.raises(DocumentUnreadable, match="UTF-16-LE"):
        decode(codecs.BOM_UTF16_LE + b"\x3d\xd8")


def test_zero_becomes_a_replacement_character_in_its_place() -> None:
    assert decode(b"a\0b") == "a\ufffdb"


def test_program_is_not_taken_for_text() -> None:
    with pytest.raises(DocumentUnreadable, match="control characters"):
        decode(b"\x00\x01\x02\x03" * 64)


def test_text_that_is_too_long_names_the_limit() -> None:
    read_plain_text(b"12345", charset="", most_characters=5)
    with pytest.raises(DocumentUnreadable, match=r"more than 5 .*limits\.document_characters"):
        read_plain_text(b"123456", charset="", most_characters=5)
