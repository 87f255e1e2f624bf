"""Durations as people write them: `300s`, `1h30m`, `500ms`, `90d`."""

import re
from datetime import timedelta

DURATION_FORM = "a number with a unit, such as 500ms, 300s, 5m, 1h30m or 90d"

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_MICROSECONDS = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
# google.protobuf.Duration ends at about 10,000 years; nobody means more than a hundred.
_LONGEST = timedelta(days=36_525)


def parse_duration(text: str) -> timedelta:
    """Reads a duration.

    Raises:
        ValueError: The text has another form, or means more than a hundred years.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not {DURATION_FORM}")
    microseconds = 0.0
    for number, unit in _PART.findall(text):
        microseconds += float(number) * _MICROSECONDS[unit]
    if microseconds > _LONGEST / timedelta(microseconds=1):
        raise ValueError(f"{text!r} is more than a hundred years")
    return timedelta(microseconds=round(microseconds))
