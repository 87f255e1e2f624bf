"""How many runs go at once, and how many may wait.

A run that could go at once stands in the line, in the order in which runs came. One that waits for
something else (its session, an instance) stands aside: it takes none of the places of those that
could go, and counts among those that wait all the same.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from enum import Enum, auto
from operator import attrgetter

from host_service.errors import Overloaded

# A run takes seconds rather than milliseconds: asking again sooner than this finds the line as long
# as it was.
_RETRY_AFTER_SECONDS = 1.0

_number_of = attrgetter("number")


class _Standing(Enum):
    ACTIVE = auto()
    IN_LINE = auto()
    ASIDE = auto()
    LEFT = auto()


class Place:
    """A run's place: active, in the line, or aside. Made by `Admission.enter`; to be left.

    Attributes:
        number: Counts the runs that came; the line goes by it.
    """

    __slots__ = ("_admission", "_turn", "number", "standing")

    def __init__(self, admission: Admission, number: int) -> None:
        self.number = number
        self.standing = _Standing.ASIDE
        self._admission = admission
        self._turn: asyncio.Future[None] | None = None

    @property
    def is_active(self) -> bool:
        """Whether it is the run's turn."""
        return self.standing is _Standing.ACTIVE

    @property
    def is_aside(self) -> bool:
        """Whether the run waits for something else than its turn."""
        return self.standing is _Standing.ASIDE

    @property
    def has_left(self) -> bool:
        """Whether it was given up."""
        return self.standing is _Standing.LEFT

    async def turn(self) -> None:
        """Return when it is the run's turn; it must be active or in the line."""
        if self.standing is _Standing.IN_LINE:
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn

    def grant(self) -> bool:
        """For the admission alone: give it the turn; False if nobody waits for it any more."""
        if self._turn is not None and self._turn.cancelled():
            self.standing = _Standing.ASIDE
            return False
        self.standing = _Standing.ACTIVE
        if self._turn is not None:
            self._turn.set_result(None)
        return True

    def step_aside(self) -> None:
        """Let others go while the run waits for something else."""
        if self.standing is not _Standing.ASIDE:
            self._admission.take_out(self)
            self.standing = _Standing.ASIDE
            self._admission.count_aside(1)

    def step_aside_if_room(self) -> None:
        """Step aside; for a run that is not accepted yet.

        Raises:
            Overloaded: As many runs wait as may.
        """
        self._admission.require_room()
        self.step_aside()

    def stand_in_line(self) -> None:
        """Go when the turn comes, which may be at once; the run keeps the number it came with."""
        if self.standing is _Standing.ASIDE:
            # It may have had its turn before, and given it away.
            self._turn = None
            self._admission.count_aside(-1)
            self._admission.line_up(self)

    def leave(self) -> None:
        """Give the place up, to whoever has waited longest. May be called again."""
        if self.standing is _Standing.ASIDE:
            self._admission.count_aside(-1)
        elif self.standing is not _Standing.LEFT:
            self._admission.take_out(self)
        self.standing = _Standing.LEFT


class Admission:
    """A bounded number of active runs, and a bounded number that wait, first come first served.

    Args:
        active: How many runs may go at once.
        waiting: How many more may wait, in the line or aside.

    Attributes:
        active: How many go.
    """

    def __init__(self, *, active: int, waiting: int) -> None:
        self._active_limit = active
        self._waiting_limit = waiting
        # By number. It has some hundred places: to move them all is less than to keep a tree.
        self._line: list[Place] = []
        self._aside = 0
        self._came = 0
        self.active = 0

    @property
    def waiting(self) -> int:
        """How many runs wait, for their turn or for something else."""
        return len(self._line) + self._aside

    @property
    def has_free_place(self) -> bool:
        """Whether a run that comes now would go at once."""
        return self.active < self._active_limit and not self._line

    def enter(self, *, aside: bool = False, beyond_limit: bool = False) -> Place:
        """Return a place for a run.

        Args:
            aside: It waits for something else first.
            beyond_limit: Let it wait even if as many wait as may: for runs that were accepted
                before.

        Raises:
            Overloaded: It would have to wait, and as many wait as may.
        """
        if (aside or not self.has_free_place) and not beyond_limit:
            self.require_room()
        self._came += 1
        place = Place(self, self._came)
        self._aside += 1
        if not aside:
            place.stand_in_line()
        return place

    def require_room(self) -> None:
        """Let one more wait.

        Raises:
            Overloaded: As many wait as may.
        """
        if self.waiting >= self._waiting_limit:
            raise Overloaded(
                f"{self.active} runs are under way and {self.waiting} wait; the limits are "
                f"{self._active_limit} and {self._waiting_limit}: try again later",
                facts={
                    "active_limit": str(self._active_limit),
                    "waiting_limit": str(self._waiting_limit),
                },
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )

    # What places tell.

    def count_aside(self, change: int) -> None:
        """One more, or one less, stands aside."""
        self._aside += change

    def line_up(self, place: Place) -> None:
        """Put a place into the line, and let go who can."""
        place.standing = _Standing.IN_LINE
        insort(self._line, place, key=_number_of)
        self._let_go()

    def take_out(self, place: Place) -> None:
        """Take a place out of the line, or from those that go, and let the next one go."""
        if place.is_active:
            self.active -= 1
        else:
            del self._line[bisect_left(self._line, place.number, key=_number_of)]
        self._let_go()

    def _let_go(self) -> None:
        while self._line and self.active < self._active_limit:
            place = self._line.pop(0)
            if place.grant():
                self.active += 1
            else:
                # Cancelled while it waited: it has yet to leave.
                self._aside += 1
