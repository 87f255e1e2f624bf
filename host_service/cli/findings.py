"""What `runmesh doctor` says: a line about one thing, and what to do about it."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How a thing is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        area: What it belongs to, such as `data folder`.
        level: How it is.
        told: What was seen.
        advice: What to do; empty when there is nothing to do.
    """

    area: str
    level: Level
    told: str
    advice: str = ""


Findings = Iterator[Finding]


def fine(area: str, told: str) -> Finding:
    """A thing that is as it should be."""
    return Finding(area, Level.OK, told)


def warning(area: str, told: str, advice: str) -> Finding:
    """A thing that works, and may not for long, or not as one thinks."""
    return Finding(area, Level.WARNING, told, advice)


def problem(area: str, told: str, advice: str) -> Finding:
    """A thing that keeps a host from its work, or costs data."""
    return Finding(area, Level.PROBLEM, told, advice)
