"""Bytes to text.

An encoding is never guessed: a wrong guess yields words that nobody will ever find. What begins
with a byte order mark says which it is (UTF-8, UTF-16, UTF-32); everything else is UTF-8, or
whatever the document itself or the one who sends it says; what is not that is refused.
"""

from __future__ import annotations

import codecs

from host_service.knowledge.document import ReadDocument, require_length
from host_service.knowledge.errors import DocumentUnreadable

# UTF-32 first: in the other order its mark would be taken for that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_REPLACEMENT = "\ufffd"
# A picture or a program has many of them, a text none or few.
_CONTROLS_IN = 1024
_MOST_CONTROLS, _MOST_CONTROLS_SHARE = 8, 0.1
_TEXT_CONTROLS = frozenset("\t\n\r\f\v\x1b")


def read_plain_text(content: bytes, *, charset: str, most_characters: int) -> ReadDocument:
    """Read plain text.

    Args:
        content: The file.
        charset: Its encoding as the one who sent it says; empty: nothing was said.
        most_characters: How long its text may be.

    Raises:
        DocumentUnreadable: It is not text in its encoding, or too long.
    """
    text = decode(content, charset=charset)
    require_length(len(text), most_characters)
    return ReadDocument(text=text)


def decode(content: bytes, *, charset: str = "") -> str:
    """Return the text that some bytes are, U+0000 replaced by U+FFFD.

    Raises:
        DocumentUnreadable: They are not text in their encoding.
    """
    mark, encoding = _marked(content)
    encoding = encoding or _known(charset) or "utf-8"
    try:
        text = content[len(mark) :].decode(encoding)
    except UnicodeError as error:
        at = getattr(error, "start", 0)
        raise DocumentUnreadable(
            f"it is not text in {encoding.upper()} (byte {at} is not): save it as UTF-8"
        ) from error
    if _is_binary(text):
        raise DocumentUnreadable("it is not text: it is full of control characters")
    # Both databases must be able to keep it, and a position stays what it was.
    return text.replace("\0", _REPLACEMENT)


def _marked(content: bytes) -> tuple[bytes, str]:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return mark, encoding
    return b"", ""


def _known(charset: str) -> str:
    """Return a text encoding's own name; empty for none, and for one that is not known."""
    try:
        # `encode` refuses what is a codec and no text encoding, such as base64.
        "".encode(charset)
        return codecs.lookup(charset).name
    except (LookupError, ValueError):
        return ""


def _is_binary(text: str) -> bool:
    beginning = text[:_CONTROLS_IN]
    controls = sum(1 for each in beginning if each < " " and each not in _TEXT_CONTROLS)
    return controls > max(_MOST_CONTROLS, len(beginning) * _MOST_CONTROLS_SHARE)
