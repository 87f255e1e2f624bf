"""How often something may happen: a steady rate, with bursts."""

from __future__ import annotations

from collections.abc import Callable


class Rate:
    """A bucket that fills steadily, and from which each occurrence takes one.

    Args:
        per_second: How many come in a second.
        burst: How many it holds; it starts full.
        monotonic: Tells seconds that only grow.

    Attributes:
        per_second: How many come in a second.
        burst: How many it holds.
    """

    __slots__ = ("_filled_at", "_left", "_monotonic", "burst", "per_second")

    def __init__(self, *, per_second: float, burst: float, monotonic: Callable[[], float]) -> None:
        self.per_second = per_second
        self.burst = burst
        self._monotonic = monotonic
        self._left = burst
        self._filled_at = monotonic()

    def take(self) -> float:
        """Take one; return 0, or after how many seconds there will be one again."""
        now = self._monotonic()
        self._left = min(self.burst, self._left + (now - self._filled_at) * self.per_second)
        self._filled_at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self.per_second
