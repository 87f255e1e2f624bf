"""When a run's time is up, by the loop's clock, which nobody sets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """The time that a run has, counted from its start.

    Args:
        seconds: How long it may take; 0: no deadline.
    """

    __slots__ = ("_seconds", "_started_at", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._started_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Count from now on; nothing if it counts already."""
        if self._started_at is None:
            self._started_at = asyncio.get_running_loop().time()

    def watch(self, on_over: Callable[[], None]) -> None:
        """Tell when the time is up; it must have been started."""
        if self._seconds and self._timer is None and self._started_at is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._started_at + self._seconds, on_over)

    def left(self) -> float | None:
        """Return the seconds that are left, at least a millisecond; None without a deadline."""
        if not self._seconds or self._started_at is None:
            return None
        return max(self._started_at + self._seconds - asyncio.get_running_loop().time(), 0.001)

    def stop_watching(self) -> None:
        """Tell nobody any more. May be called again."""
        if self._timer is not None:
            self._timer.cancel()
