"""The texts of `_json` fields: what they may hold, and how those of a runner are mended.

A text that is checked goes through the C parser first, which is fast and is made to dislike all
that the contract forbids. What it dislikes goes to the scanner, which decides whether the text is
faulty indeed, and says where. A long text is left to the C parser alone: the scanner would hold up
the host, which is worse than a fault without a place.
"""

import json
from typing import Any, Final

from host_service.validation.json_exact import read_exactly, write_exactly
from host_service.validation.json_scanner import (
    DUPLICATE_NAME,
    ESCAPE,
    ESCAPE_PROBLEMS,
    LONE_SURROGATE,
    MAX_DEPTH,
    NOT_A_NUMBER,
    SOMETHING_AFTER,
    TOO_DEEP,
    TOO_LARGE_A_NUMBER,
    JsonFault,
    fault_at,
    scan,
    skip_space,
)

__all__ = ["JsonFault", "find_json_fault", "passes_quickly", "repair_json_text", "repair_text"]

# Only an integer that is longer can lie beyond a double's range.
_LONGEST_SAFE_INTEGER: Final = 308
_LONGEST_SCANNED: Final = 64 * 1024
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
    if not passes_quickly(text) and (fault := _explain(text)):
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
    Where two names of an object become the same by it, the later one holds. The text need not be
    valid JSON, and is then none after it.

    Returns:
        The text, and whether it was changed.
    """
    repaired = repair_text(text)
    if "\\u" in repaired:
        repaired = ESCAPE.sub(lambda found: "\\ufffd" if found.lastgroup else found[0], repaired)
    if repaired == text:
        return text, False
    fault = find_json_fault(repaired)
    if fault and fault.problem == DUPLICATE_NAME:
        repaired = _with_distinct_names(repaired)
    return repaired, True


def _with_distinct_names(text: str) -> str:
    """Lets the later of two equal names hold; leaves a text that has other faults as well."""
    try:
        merged = write_exactly(read_exactly(text))
    except (ValueError, RecursionError):
        return text
    return text if find_json_fault(merged) else merged


def _explain(text: str) -> JsonFault | None:
    return scan(text) if len(text) <= _LONGEST_SCANNED else _explain_long(text)


def _explain_long(text: str) -> JsonFault | None:
    """Tells what `passes_quickly` disliked, and the place where that is known."""
    for escape in ESCAPE.finditer(text):
        if escape.lastgroup:
            return fault_at(text, escape.start(), ESCAPE_PROBLEMS[escape.lastgroup])
    try:
        text.encode()
        value, end = _DECODE_LONG(text, skip_space(text, 0))
    except _Suspect as error:
        return JsonFault(error.problem)
    except UnicodeEncodeError as error:
        return fault_at(text, error.start, LONE_SURROGATE)
    except json.JSONDecodeError as error:
        return fault_at(text, error.pos, "something that is not JSON")
    except RecursionError:
        return JsonFault(TOO_DEEP)
    after = skip_space(text, end)
    if after != len(text):
        return fault_at(text, after, SOMETHING_AFTER)
    return JsonFault(TOO_DEEP) if _is_too_deep(value) else None


class _Suspect(ValueError):
    """Something that JSON allows, or Python does, and the contract does not."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def _suspect_constant(_name: str) -> None:
    raise _Suspect(NOT_A_NUMBER)


def _finite_float(text: str) -> float:
    value = float(text)
    if value in _INFINITE:
        raise _Suspect(TOO_LARGE_A_NUMBER)
    return value


def _bounded_integer(text: str) -> int:
    if len(text) > _LONGEST_SAFE_INTEGER and float(text) in _INFINITE:
        raise _Suspect(TOO_LARGE_A_NUMBER)
    return int(text)


def _distinct_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise _Suspect(DUPLICATE_NAME)
    return names


_DECODE_SHORT: Final = json.JSONDecoder(
    object_pairs_hook=_distinct_names, parse_constant=_suspect_constant, parse_float=_finite_float
).raw_decode
_DECODE_LONG: Final = json.JSONDecoder(
    object_pairs_hook=_distinct_names,
    parse_constant=_suspect_constant,
    parse_float=_finite_float,
    parse_int=_bounded_integer,
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
