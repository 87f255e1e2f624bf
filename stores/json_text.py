"""What a JSON text must be to be kept as text.

The stores never write JSON anew: a text goes in and out as it came, so that no digit of a number
and no space is lost. It is read once on the way in, by the rules that hold for every JSON of the
contract, so that what is refused does not depend on the engine and whoever reads it later, in any
language, can.
"""

from __future__ import annotations

import json
from math import isinf
from typing import Any, Final

from stores.errors import InvalidRecord

MAX_DEPTH: Final = 64

# A shorter integer is within the range of a double.
_LONGEST_SAFE_INTEGER: Final = 308


def check_json(record: str, field: str, text: str) -> None:
    """Check that a text is one JSON value (RFC 8259), of those that every reader understands.

    Not allowed: NaN and Infinity, numbers beyond the range of a double (integers within it may
    have any number of digits), two members of one name, nesting over 64, and U+0000 or a lone
    surrogate, as themselves or as escapes.

    Raises:
        InvalidRecord: It is not; the rule says what is wrong and quotes nothing of the text.
    """
    fault = find_json_fault(text)
    if fault is not None:
        raise InvalidRecord(record, field, f"must be JSON: {fault}")


def find_json_fault(text: str) -> str | None:
    """Return what is wrong with a JSON text, or `None`."""
    try:
        text.encode()
        value = _READER.decode(text)
    except _FaultError as fault:
        return str(fault)
    except UnicodeEncodeError:
        return "it holds a lone surrogate: replace it by U+FFFD"
    except json.JSONDecodeError as error:
        return f"it cannot be read at line {error.lineno}, column {error.colno}"
    except RecursionError:
        return _TOO_DEEP
    return _find_fault_within(value, look_at_text="\\u" in text)


_TOO_DEEP: Final = f"it is nested over {MAX_DEPTH} levels deep: flatten it"


class _FaultError(ValueError):
    """Something that Python's reader takes, and others do not."""


def _refuse_constant(_name: str) -> None:
    raise _FaultError("NaN and Infinity are no JSON: use null or a string")


def _check_number(text: str) -> None:
    if isinf(float(text)):
        raise _FaultError("it holds a number beyond the range of a double: use a string")


def _check_integer(text: str) -> None:
    # Never turned into an integer: that takes ever longer with its digits.
    if len(text) > _LONGEST_SAFE_INTEGER:
        _check_number(text)


def _distinct(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) != len(members):
        raise _FaultError("an object has two members of one name: keep one of them")
    return value


_READER: Final = json.JSONDecoder(
    object_pairs_hook=_distinct,
    parse_constant=_refuse_constant,
    parse_float=_check_number,
    parse_int=_check_integer,
)


def _find_fault_within(value: Any, *, look_at_text: bool) -> str | None:
    """Go down level by level, so that the nesting of a text never becomes that of calls."""
    level = [value]
    for depth in range(MAX_DEPTH + 1):
        if look_at_text and not all(map(_is_text_storable, level)):
            return "an escape stands for U+0000 or a lone surrogate: remove or replace it"
        if depth == MAX_DEPTH and any(isinstance(each, dict | list) for each in level):
            return _TOO_DEEP
        level = [child for parent in level for child in _children(parent)]
        if not level:
            break
    return None


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list) else []


def _is_text_storable(value: Any) -> bool:
    if not isinstance(value, str):
        return True
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
