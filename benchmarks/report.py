"""The report: rows of figures beside their floors and goals, as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.spread import Spread, paired_ratios

_HEADINGS = ("what", "measured", "floor", "ratio", "spread", "goal", "")


@dataclass(frozen=True, slots=True)
class Goal:
    """How far a figure must go.

    Attributes:
        limit: The figure.
        at_least: Whether more is better; else less is.
    """

    limit: float
    at_least: bool

    def is_met(self, figure: float) -> bool:
        """Whether a figure reaches the goal."""
        return figure >= self.limit if self.at_least else figure <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {_figure(self.limit)}"


def at_least(limit: float) -> Goal:
    """A goal that is reached from below."""
    return Goal(limit, at_least=True)


def at_most(limit: float) -> Goal:
    """A goal that is kept to from above."""
    return Goal(limit, at_least=False)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report.

    Attributes:
        what: What was measured, and against what.
        unit: Of the figures, such as `results/s`.
        measured: A figure a round.
        floor: The floor's figure of the same round; None: there is no floor.
        goal: For the ratio; without a floor, for the figure itself. None: for information.
    """

    what: str
    unit: str
    measured: Sequence[float]
    floor: Sequence[float] | None = None
    goal: Goal | None = None

    @property
    def judged(self) -> Spread:
        """What the goal is about."""
        if self.floor is None:
            return Spread.of(self.measured)
        return Spread.of(paired_ratios(self.measured, self.floor))

    @property
    def is_missed(self) -> bool:
        """Whether there is a goal that is not reached."""
        return self.goal is not None and not self.goal.is_met(self.judged.median)

    def cells(self) -> tuple[str, ...]:
        """Returns the row's cells in the table."""
        judged = self.judged
        verdict = "" if self.goal is None else "missed" if self.is_missed else "met"
        return (
            self.what,
            f"{_figure(Spread.of(self.measured).median)} {self.unit}",
            "" if self.floor is None else f"{_figure(Spread.of(self.floor).median)}",
            "" if self.floor is None else _figure(judged.median),
            f"{_figure(judged.low)} .. {_figure(judged.high)}",
            "" if self.goal is None else str(self.goal),
            verdict,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns everything that is known of the row."""
        judged = self.judged
        return {
            "what": self.what,
            "unit": self.unit,
            "measured": list(self.measured),
            "floor": None if self.floor is None else list(self.floor),
            "judged": "measured" if self.floor is None else "ratio",
            "median": judged.median,
            "quartiles": [judged.low, judged.high],
            "goal": None if self.goal is None else str(self.goal),
            "met": None if self.goal is None else not self.is_missed,
        }


def table(rows: Sequence[Row]) -> str:
    """Returns rows as a table for people."""
    lines = [_HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(
            # Words to the left, figures to the right.
            cell.ljust(width) if column in {0, 5, 6} else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _figure(value: float) -> str:
    """Three digits that matter, and no exponent."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"
