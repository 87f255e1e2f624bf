"""Parameters of a call: read with every digit, and held against the tool's schema.

A schema that is broken, or refers to another place, is not checked against: the server checks its
parameters itself, and to refuse every call would take a tool away for a fault that nobody who calls
it can mend. No schema is ever fetched.

A number with a point or an exponent travels as 64 bits of floating point: that is all that the
protocol's own libraries carry, and most servers read. One with more digits is refused rather than
rounded, so that nobody works with a number that was never given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from host_service.errors import FieldFault, InvalidArgument

if TYPE_CHECKING:
    import jsonschema_rs

_FIELD = "parameters_json"
_MOST_FAULTS = 20
# How far a pattern may search, and how large it may be: a tool's schema is a stranger's.
_BACKTRACKS = 100_000
_PATTERN_BYTES = 1024 * 1024
_SHOWN_CHARACTERS = 500
_MASK = "the value"
_DOUBLE = (
    "a number that a double holds without rounding; more digits as text, where a tool takes it"
)


class _Rounded(float):
    """A number that has lost digits."""


def read_parameters(text: str) -> dict[str, Any]:
    """Returns the parameters of a call: numbers with every digit, whole ones as integers.

    Raises:
        InvalidArgument: They are no JSON object, or have a number that nobody could read, or one
            with more digits than a double holds: each such fault names the place.
    """
    rounded: list[float] = []

    def read(number: str) -> float:
        value = _finite(number)
        if not _is_kept(number, value):
            value = _Rounded(value)
            rounded.append(value)
        return value

    try:
        value = json.loads(text or "{}", parse_float=read, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            [FieldFault(_FIELD, f"a JSON object ({error})", "other text")]
        ) from error
    if not isinstance(value, dict):
        raise InvalidArgument([FieldFault(_FIELD, "a JSON object", _shape(value))])
    if rounded:
        places = islice(_places_of_rounded(value), _MOST_FAULTS)
        if faults := [FieldFault(each, _DOUBLE, "more digits") for each in places]:
            raise InvalidArgument(faults)
    return value


def find_trouble(schema_json: str) -> str:
    """Returns what is wrong with a schema of parameters; empty: nothing."""
    try:
        _validator(schema_json)
    except (ValueError, RecursionError) as error:
        first = str(error).strip().partition("\n")[0]
        return f"its schema cannot be used: {first[:_SHOWN_CHARACTERS]}"
    return ""


def check_parameters(schema_json: str, parameters: dict[str, Any]) -> None:
    """Returns if parameters are what a schema without trouble allows.

    Raises:
        InvalidArgument: They are not; each fault names the place as a JSON pointer, the rule, and
            the shape of what is there.
    """
    faults = []
    for error in _validator(schema_json).iter_errors(parameters):
        faults.append(_fault(error, parameters))
        if len(faults) >= _MOST_FAULTS:
            break
    if faults:
        raise InvalidArgument(faults)


@lru_cache(maxsize=256)
def _validator(schema_json: str) -> jsonschema_rs.Validator:
    # Takes longer to import than a host without tools should wait.
    import jsonschema_rs

    schema = json.loads(schema_json)
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise ValueError("it describes no JSON object")
    return jsonschema_rs.validator_for(
        schema,
        offline=True,
        mask=_MASK,
        pattern_options=jsonschema_rs.FancyRegexOptions(
            backtrack_limit=_BACKTRACKS, size_limit=_PATTERN_BYTES
        ),
    )


def _fault(error: jsonschema_rs.ValidationError, parameters: dict[str, Any]) -> FieldFault:
    pointer = "".join(f"/{_escaped(each)}" for each in error.instance_path)
    keyword = next((each for each in reversed(error.schema_path) if isinstance(each, str)), "")
    rule = f"{error.message[:_SHOWN_CHARACTERS]} ({keyword})"
    return FieldFault(f"{_FIELD}{pointer}", rule, _shape(_at(parameters, error.instance_path)))


def _at(value: Any, path: list[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


def _escaped(step: str | int) -> str:
    return str(step).replace("~", "~0").replace("/", "~1")


def _shape(value: object) -> str:
    if isinstance(value, dict):
        return f"an object with {len(value)} entries"
    if isinstance(value, list):
        return f"an array of {len(value)} entries"
    if isinstance(value, str):
        return f"a text of {len(value)} characters"
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true or false"
    return "a whole number" if isinstance(value, int) else "a number"


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is beyond what a number may be")
    return number


def _is_kept(text: str, number: float) -> bool:
    """Returns whether a double is what a text says, or the text is how doubles are written."""
    if number == 0.0:
        return not any(each in "123456789" for each in text.lower().partition("e")[0])
    # Seventeen digits name a double as well as the fewest that do.
    return Decimal(text) in (Decimal(repr(number)), Decimal(f"{number:.17g}"))


def _places_of_rounded(parameters: dict[str, Any]) -> Iterator[str]:
    # Not by recursion: what could be read may be as deep as that goes.
    waiting: list[tuple[str, Any]] = [(_FIELD, parameters)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, _Rounded):
            yield place
        steps: list[tuple[str | int, Any]] = []
        if isinstance(value, dict):
            steps = list(value.items())
        elif isinstance(value, list):
            steps = list(enumerate(value))
        waiting += [(f"{place}/{_escaped(step)}", each) for step, each in reversed(steps)]


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON")
