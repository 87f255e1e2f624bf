"""When a call is sent again: what the provider says, else a little later each time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime

_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 8.0
_MILLISECONDS = "retry-after-ms"
_RETRY_AFTER = "retry-after"


def retry_after(
    headers: Mapping[str, str], *, wall_clock: Callable[[], float] = time.time
) -> float | None:
    """Return the seconds after which a provider wants to be called again, by its headers.

    `retry-after-ms` has milliseconds; `retry-after` has seconds or a date (RFC 9110, 10.2.3).

    Args:
        headers: Those of the answer, found by names in lower case.
        wall_clock: Tells the seconds since 1970.

    Returns:
        Seconds, at least 0; None where they do not say, or say nothing that can be read.
    """
    milliseconds = _number(headers.get(_MILLISECONDS))
    if milliseconds is not None:
        return milliseconds / 1000
    said = headers.get(_RETRY_AFTER)
    seconds = _number(said)
    if seconds is not None or said is None:
        return seconds
    try:
        at = parsedate_to_datetime(said)
    except ValueError:
        return None
    return max(at.timestamp() - wall_clock(), 0.0)


def wait_seconds(
    attempt: int, said: float | None, *, chance: Callable[[], float] = random.random
) -> float:
    """Return how long to wait before a call is sent again.

    Args:
        attempt: How often it was sent, at least 1.
        said: What the provider says; None: nothing.
        chance: Gives a number from 0 to 1, so that not all who failed together come together.
    """
    if said is not None:
        return said
    wait = min(_FIRST_WAIT_SECONDS * 2.0 ** (attempt - 1), _LONGEST_WAIT_SECONDS)
    return wait * (0.75 + chance() / 4)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
