"""Reads and writes JSON without losing a digit: numbers stay the text that they were written as."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written."""

    text: str


read_exactly: Final = json.JSONDecoder(parse_int=Number, parse_float=Number).decode
"""Reads a text that passed the rules; of names that are the same, the last holds."""


def write_exactly(value: Any) -> str:
    """Writes what `read_exactly` gave, in one line and without spaces."""
    return "".join(_pieces(value))


def _pieces(value: Any) -> Iterator[str]:
    """Recurses no deeper than the rules let JSON be nested."""
    if isinstance(value, Number):
        yield value.text
    elif isinstance(value, dict):
        yield "{"
        for index, (name, entry) in enumerate(value.items()):
            yield f"{',' if index else ''}{_quoted(name)}:"
            yield from _pieces(entry)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for index, entry in enumerate(value):
            yield "," if index else ""
            yield from _pieces(entry)
        yield "]"
    else:
        yield _quoted(value)


# Characters stay themselves: as escapes, Chinese would be twice as long.
_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode
