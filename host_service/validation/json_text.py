"""The texts of `_json` fields: what they may hold, and how those of a runner are mended.

A text that is checked goes through the C parser first, which is fast and dislikes most of what the
contract forbids. What it dislikes, and what it cannot see, goes to the scanner, which alone decides
that a text is faulty, and says where.
"""

import json
from typing import Any, Final

from host_service.validation.json_scanner import (
    ESCAPE,
    MAX_DEPTH,
    JsonFault,
    fault_at,
    scan,
    skip_space,
)

__all__ = ["JsonFault", "find_json_fault", "passes_quickly", "repair_json_text", "repair_text"]

# Every integer that is longer lies beyond a double's range, or nearly so.
_LONGEST_SAFE_INTEGER: Final = 308
_OPENINGS: Final = ("{", "[")
_INFINITE: Final = frozenset({float("inf"), float("-inf")})
_KINDS: Final = {"[": "a list", '"': "a string", "t": "true", "f": "false", "n": "null"}


def find_json_fault(text: str, *, only_object: bool = False) -> JsonFault | None:
    """Looks for the first fault of a JSON text.

    Args:
        text: The text of a `_json` field.
        only_object: Whether the value must be an object.

    Returns:
        What is wrong and where, without any of the text; None for a text that may stand.
    """
    if not passes_quickly(text) and (fault := scan(text)):
        return fault
    if only_object and text[0] != "{":
        start = skip_space(text, 0)
        if text[start] != "{":
            kind = _KINDS.get(text[start], "a number")
            return fault_at(text, start, f"{kind} instead of an object")
    return None


def repair_text(text: str) -> str:
    """Puts U+FFFD for U+0000 and for lone surrogates, after joining the halves of pairs."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", "\ufffd")


def repair_json_text(text: str) -> tuple[str, bool]:
    r"""Mends what a JSON text may not contain, and leaves every other character alone.

    Escapes of U+0000 and of lone surrogates become `\ufffd`; what stands there unescaped becomes
    U+FFFD itself. Escaped pairs and the text of an escaped backslash (`\\u0000`) are not touched.
    The text need not be valid JSON.

    Returns:
        The text, and whether it was changed.
    """
    repaired = repair_text(text)
    if "\\u" in repaired:
        repaired = ESCAPE.sub(lambda found: "\\ufffd" if found.lastgroup else found[0], repaired)
    return repaired, repaired != text


class _Suspect(ValueError):
    """Something that the scanner must judge."""


def _suspect_constant(_name: str) -> None:
    raise _Suspect


def _finite_float(text: str) -> float:
    value = float(text)
    if value in _INFINITE:
        raise _Suspect
    return value


def _short_integer(text: str) -> int:
    if len(text) > _LONGEST_SAFE_INTEGER:
        raise _Suspect
    return int(text)


def _distinct_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise _Suspect
    return names


_DECODE_SHORT: Final = json.JSONDecoder(
    object_pairs_hook=_distinct_names, parse_constant=_suspect_constant, parse_float=_finite_float
).raw_decode
_DECODE_LONG: Final = json.JSONDecoder(
    object_pairs_hook=_distinct_names,
    parse_constant=_suspect_constant,
    parse_float=_finite_float,
    parse_int=_short_integer,
).raw_decode


def passes_quickly(text: str) -> bool:
    """Says yes only to texts without a fault; a no means nothing yet."""
    if "\\u" in text and any(found.lastgroup for found in ESCAPE.finditer(text)):
        return False
    decode = _DECODE_SHORT if len(text) <= _LONGEST_SAFE_INTEGER else _DECODE_LONG
    try:
        if not text.isascii():
            text.encode()
        value, end = decode(text, 0 if text[:1] in _OPENINGS else skip_space(text, 0))
    except (ValueError, RecursionError):
        return False
    if end != len(text) and skip_space(text, end) != len(text):
        return False
    # It takes as many brackets as levels to nest that deep.
    if end <= MAX_DEPTH:
        return True
    return text.count("[") + text.count("{") <= MAX_DEPTH or not _is_too_deep(value)


def _is_too_deep(value: Any) -> bool:
    """Goes down level by level, so that the nesting of a text never becomes that of calls."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True
