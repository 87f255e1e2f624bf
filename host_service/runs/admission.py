"""How many runs go at once, and how many may wait for their turn."""

from __future__ import annotations

import asyncio
from collections import deque

from host_service.errors import Overloaded

# A run takes seconds rather than milliseconds: asking again sooner than this finds the line as long
# as it was.
_RETRY_AFTER_SECONDS = 1.0


class Place:
    """A run's place: active, or in the line. Made by `Admission.enter`; to be left."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._turn: asyncio.Future[None] | None = None
        self._left = False

    @property
    def is_active(self) -> bool:
        """Whether it is the run's turn."""
        return self._turn is None or (self._turn.done() and not self._turn.cancelled())

    async def turn(self) -> None:
        """Return when it is the run's turn."""
        if self._turn is not None:
            await self._turn

    def leave(self) -> None:
        """Give the place up, to whoever has waited longest. May be called again."""
        if not self._left:
            self._left = True
            self._admission.left(self)

    def stand_in_line(self) -> None:
        """Wait for its turn from now on."""
        self._turn = asyncio.get_running_loop().create_future()


class Admission:
    """A bounded number of active runs, and a bounded line behind them, first come first served.

    Args:
        active: How many runs may go at once.
        waiting: How many more may wait.
    """

    def __init__(self, *, active: int, waiting: int) -> None:
        self._active_limit = active
        self._waiting_limit = waiting
        self._line: deque[Place] = deque()
        self.active = 0

    @property
    def waiting(self) -> int:
        """How many runs wait."""
        return len(self._line)

    def enter(self, *, beyond_limit: bool = False) -> Place:
        """Return a place for a run.

        Args:
            beyond_limit: Let it wait even in a full line: for runs that were accepted before.

        Raises:
            Overloaded: The line is full.
        """
        place = Place(self)
        if self.active < self._active_limit and not self._line:
            self.active += 1
        elif len(self._line) < self._waiting_limit or beyond_limit:
            place.stand_in_line()
            self._line.append(place)
        else:
            raise Overloaded(
                f"{self.active} runs are under way and {len(self._line)} wait, which are the "
                "limits: try again later",
                facts={
                    "active_limit": str(self._active_limit),
                    "waiting_limit": str(self._waiting_limit),
                },
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )
        return place

    def left(self, place: Place) -> None:
        """Take a place back, and let the next run go."""
        if not place.is_active:
            if place in self._line:
                self._line.remove(place)
            return
        self.active -= 1
        while self._line and self.active < self._active_limit:
            turn = self._line.popleft()._turn  # noqa: SLF001 - a place is a part of its admission
            if turn is not None and not turn.done():
                turn.set_result(None)
                self.active += 1
