"""Parameters of a call: read with every digit, and held against the tool's schema.

A schema that is broken, or refers to another place, is not checked against: the server checks its
parameters itself, and to refuse every call would take a tool away for a fault that nobody who calls
it can mend. No schema is ever fetched.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
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


def read_parameters(text: str) -> dict[str, Any]:
    """Returns the parameters of a call: whole numbers with every digit, others as doubles.

    Raises:
        InvalidArgument: They are no JSON object, or have a number that nobody could read.
    """
    try:
        value = json.loads(text or "{}", parse_float=_finite, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            [FieldFault(_FIELD, f"a JSON object ({error})", "other text")]
        ) from error
    if not isinstance(value, dict):
        raise InvalidArgument([FieldFault(_FIELD, "a JSON object", _shape(value))])
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


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON")
