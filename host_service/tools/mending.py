"""Texts of tool servers made Unicode, wherever they come from.

JSON lets a text have half of a surrogate pair, or U+0000, as an escape. Neither can be stored or
sent on: both become U+FFFD.
"""

from __future__ import annotations

import math
import re
from typing import Any

_REPLACED = "\ufffd"
# A whole pair, half of one, or any other escape: taken in order, so that an escaped backslash does
# not begin one.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    rb"|u[dD][c-fC-F][0-9a-fA-F]{2}|.)",
    re.DOTALL,
)
# What an escape that is not whole yet looks like: up to a pair without its last digit.
_CUT_ESCAPE = re.compile(
    rb"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?)?\Z"
)
_HALVES = (b"\\ud", b"\\uD")
# The longest of those.
_CUT_BYTES = 11


def mend_escapes(data: bytes) -> bytes:
    """Replaces escapes of half a surrogate pair in JSON text."""
    if not any(half in data for half in _HALVES):
        return data
    return _ESCAPE.sub(_mended, data)


def _mended(match: re.Match[bytes]) -> bytes:
    escape = match[0]
    is_half = (
        escape[1:3].lower() == b"ud" and escape[3:4].lower() in b"89abcdef" and len(escape) == 6
    )
    return rb"\ufffd" if is_half else escape


class StreamMender:
    """Does the same in a stream, wherever it is cut."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Returns what is whole of what came so far."""
        data = self._held + data
        self._held = b""
        start = max(len(data) - _CUT_BYTES, 0)
        # An odd run of backslashes before the tail could be cut in two: look from where it begins.
        while start and data[start - 1 : start] == b"\\":
            start -= 1
        cut = self._cut_at(data, start)
        if cut is not None:
            data, self._held = data[:cut], data[cut:]
        return mend_escapes(data)

    def end(self) -> bytes:
        """Returns what was held back."""
        held, self._held = self._held, b""
        return mend_escapes(held)

    @staticmethod
    def _cut_at(data: bytes, start: int) -> int | None:
        """Where an escape begins that may go on; None: none does."""
        position = start
        while (found := data.find(b"\\", position)) >= 0:
            if _CUT_ESCAPE.match(data, found):
                return found
            match = _ESCAPE.match(data, found)
            position = match.end() if match else found + 1
        return None


def clean_text(text: str) -> str:
    """Returns a text as it may be stored and sent."""
    if "\0" in text:
        text = text.replace("\0", _REPLACED)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_json(value: Any) -> Any:
    """Returns a JSON value as it may be stored: texts cleaned, what is no number `null`.

    NaN and the infinities are no JSON: a server that writes them all the same means that there is
    no number.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {clean_text(str(name)): clean_json(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [clean_json(entry) for entry in value]
    return value


def depth_of(value: Any, most: int) -> int:
    """Returns how deep a JSON value is nested, no further than one beyond `most`."""
    depth, level = 0, [value]
    while level and depth <= most:
        level = [
            entry
            for each in level
            if isinstance(each, dict | list)
            for entry in (each.values() if isinstance(each, dict) else each)
        ]
        depth += 1
    return depth
