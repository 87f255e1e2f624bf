"""JSON as the contract wants it: exact integers, no NaN, text that can be encoded."""

import json
from typing import Any, NoReturn


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


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
