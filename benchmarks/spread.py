"""What many measurements say together: the median, and how far they lie apart."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Sums values up.

        Raises:
            ValueError: There are none.
        """
        return cls(
            median=percentile(values, 0.5),
            low=percentile(values, 0.25),
            high=percentile(values, 0.75),
        )


def percentile(values: Sequence[float], fraction: float) -> float:
    """Returns the value below which a fraction of the values lies, interpolated between two.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("a percentile of no values")
    ordered = sorted(values)
    place = fraction * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def paired_ratios(measured: Sequence[float], floor: Sequence[float]) -> list[float]:
    """Returns the ratio of each round: what ran side by side is compared with each other.

    Raises:
        ValueError: They are not of the same rounds.
    """
    return [mine / bare for mine, bare in zip(measured, floor, strict=True)]
