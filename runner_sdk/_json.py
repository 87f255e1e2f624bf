"""JSON as the contract wants it: exact integers, no NaN, text that can be encoded."""

import json
import re
from typing import Any, NoReturn

# Every escape is matched, so that a backslash that is itself escaped begins none.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def to_json(value: object, *, field: str) -> str:
    """Returns a value as one JSON text.

    Args:
        value: Dictionaries with text keys, lists, text, numbers, booleans and None.
        field: What the value is for, to name it in the error.

    Raises:
        ValueError: The value has no form in JSON.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{field}: not a JSON value: {error}") from error


def from_json(text: str) -> Any:
    """Returns the value of one JSON text; integers keep all their digits.

    Raises:
        ValueError: It is not JSON; NaN and Infinity are not.
    """
    return json.loads(text, parse_constant=_refuse)


def mend_escapes(text: str) -> str:
    """Replaces escapes of lone surrogates in one JSON text by that of U+FFFD.

    Whoever writes JSON by hand, as models do, may escape half of a character, which no host takes.
    """
    return _ESCAPE.sub(lambda found: "\\ufffd" if found["lone"] else found[0], text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
