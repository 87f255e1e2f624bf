"""A scanner of JSON texts that knows the contract's rules and where a text breaks them.

It is iterative: a stack of its own stands for the nesting, so that no text can exhaust Python's.
Every step moves forward, so that its time grows with the text and no faster.
"""

import json
import re
from dataclasses import dataclass
from typing import Final

MAX_DEPTH: Final = 64
DUPLICATE_NAME: Final = "a duplicate name"
LONE_SURROGATE: Final = "a lone surrogate"
NOT_A_NUMBER: Final = "NaN or Infinity"
SOMETHING_AFTER: Final = "something after the value"
TOO_DEEP: Final = f"nesting over {MAX_DEPTH}"
TOO_LARGE_A_NUMBER: Final = "a number beyond the range of a double"

_STRING_START: Final = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+")
_WORD: Final = re.compile(r"(?:true|false|null)(?![A-Za-z0-9_])")
_NO_NUMBER: Final = re.compile(r"-?(?:NaN|Infinity)")
_SPACE: Final = re.compile(r"[ \t\n\r]*+")

# In this order: a pair is whole, what is left of its halves is lone, and any other escape is passed
# over as a unit, so that what follows an escaped backslash is never taken for an escape.
ESCAPE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<zero>\\u0000)"
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\[\s\S]"
)

ESCAPE_PROBLEMS: Final = {"zero": "an escaped U+0000", "lone": "an escaped lone surrogate"}


@dataclass(frozen=True, slots=True)
class JsonFault:
    """What is wrong with a JSON text, and where.

    Attributes:
        problem: What is wrong, without any of the text.
        line: The line, counted from 1; 0 where the place is not known.
        column: The character in the line, counted from 1.
    """

    problem: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.problem
        return f"{self.problem} at line {self.line}, column {self.column}"


def fault_at(text: str, position: int, problem: str) -> JsonFault:
    """Turns a position in a text into line and column."""
    line = text.count("\n", 0, position) + 1
    return JsonFault(problem, line, position - text.rfind("\n", 0, position))


def skip_space(text: str, position: int) -> int:
    """Returns the position of the next character that is not JSON's white space."""
    found = _SPACE.match(text, position)
    return found.end() if found else position


def scan(text: str) -> JsonFault | None:
    """Returns the first fault of a text, or None for a JSON value that keeps the rules."""
    try:
        _Scanner(text).read()
    except _Fault as found:
        return fault_at(text, found.position, found.problem)
    return None


class _Fault(Exception):
    def __init__(self, position: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem


class _Scanner:
    """Walks over one text once.

    `_open` holds, for each list entered, None, and for each object entered, the names seen in it.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._open: list[set[str] | None] = []
        self._at_first = False

    def read(self) -> None:
        """Reads one value and whatever is nested in it."""
        if lone := re.search("[\ud800-\udfff]", self._text):
            raise _Fault(lone.start(), LONE_SURROGATE)
        self._read_value_start()
        while self._open:
            self._read_rest()
        if self._peek():
            raise _Fault(self._position, SOMETHING_AFTER)

    def _read_rest(self) -> None:
        """Reads one entry of the innermost list or object, or its end."""
        names = self._open[-1]
        closing = "]" if names is None else "}"
        character = self._peek()
        if character == closing:
            self._position += 1
            self._open.pop()
            self._at_first = False
            return
        if not self._at_first:
            if character != ",":
                raise self._unexpected(f"a comma or `{closing}`")
            self._position += 1
        self._at_first = False
        if names is not None:
            self._read_name(names)
        self._read_value_start()

    def _read_value_start(self) -> None:
        """Reads a whole scalar, or only the opening of a list or object."""
        character = self._peek()
        if character == '"':
            self._read_string()
        elif character in {"[", "{"}:
            self._enter(None if character == "[" else set())
        elif found := _WORD.match(self._text, self._position):
            self._position = found.end()
        else:
            self._read_number()

    def _enter(self, names: set[str] | None) -> None:
        if len(self._open) == MAX_DEPTH:
            raise _Fault(self._position, TOO_DEEP)
        self._position += 1
        self._open.append(names)
        self._at_first = True

    def _read_name(self, names: set[str]) -> None:
        if self._peek() != '"':
            raise self._unexpected("a name in double quotes")
        start = self._position
        token = self._read_string()
        name = json.loads(token) if "\\" in token else token[1:-1]
        if name in names:
            raise _Fault(start, DUPLICATE_NAME)
        names.add(name)
        if self._peek() != ":":
            raise self._unexpected("a colon")
        self._position += 1

    def _read_string(self) -> str:
        found = _STRING_START.match(self._text, self._position)
        end = found.end() if found else self._position
        token = self._text[self._position : end + 1]
        for escape in ESCAPE.finditer(token) if "\\u" in token else ():
            if escape.lastgroup:
                raise _Fault(self._position + escape.start(), ESCAPE_PROBLEMS[escape.lastgroup])
        if self._text[end : end + 1] != '"':
            raise _Fault(end, _what_ends_a_string(self._text[end : end + 1]))
        self._position = end + 1
        return token

    def _read_number(self) -> None:
        if _NO_NUMBER.match(self._text, self._position):
            raise _Fault(self._position, NOT_A_NUMBER)
        found = _NUMBER.match(self._text, self._position)
        if not found:
            raise self._unexpected("a value")
        if float(found[0]) in {float("inf"), float("-inf")}:
            raise _Fault(self._position, TOO_LARGE_A_NUMBER)
        self._position = found.end()

    def _peek(self) -> str:
        """Passes over white space and returns the next character; nothing at the end."""
        self._position = skip_space(self._text, self._position)
        return self._text[self._position : self._position + 1]

    def _unexpected(self, wanted: str) -> _Fault:
        if self._position == len(self._text):
            return _Fault(self._position, f"the end of the text where {wanted} should be")
        return _Fault(self._position, f"something else than {wanted}")


def _what_ends_a_string(character: str) -> str:
    if not character:
        return "a string without an end"
    if character == "\\":
        return "an escape that JSON does not know"
    return f"an unescaped control character U+{ord(character):04X}"
