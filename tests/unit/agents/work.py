"""Counts the work that a call does, so that "quick" can be tested without a clock."""

import sys
from collections.abc import Callable
from types import FrameType


class TooMuchWork(Exception):
    """A call went on past the bound it was given."""


def calls_made_by(call: Callable[[], object], *, at_most: int) -> int:
    """Return how many Python functions a call runs.

    Args:
        call: What is measured.
        at_most: Where it is stopped, so that a test of something slow fails soon.

    Raises:
        TooMuchWork: It is more.
    """
    made = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal made
        made += event == "call"
        if made > at_most:
            sys.setprofile(None)
            raise TooMuchWork(f"more than {at_most} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(before)
    return made
