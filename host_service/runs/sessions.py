"""The runs of each session, in the order in which they came.

A session has a line as long as it has runs, active or waiting; nothing is kept of one that has
none. A run that goes in order has its turn when everything that came before it has ended, whatever
that was. One that goes beside others has it at once, and those behind it in order wait for it too.
Sessions know nothing of each other, so that one never waits for another.

The order is that of one host. Runs of one session on two hosts go side by side, as each host has
instances of its own: whoever puts several hosts behind one address keeps a conversation on one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime


class Turn:
    """A run's turn in its session. Made by `Sessions.enter`; to be left.

    Attributes:
        run_id: The run.
        came_at: When the run came.
        has_come: Whether the run may go.
        is_settled: Whether it is known that the run is accepted, and no redelivery of another.
    """

    __slots__ = (
        "_came",
        "_key",
        "_sessions",
        "_settled",
        "came_at",
        "has_come",
        "is_settled",
        "run_id",
    )

    def __init__(self, sessions: Sessions, key: str, run_id: str, came_at: datetime) -> None:
        self.run_id = run_id
        self.came_at = came_at
        self.has_come = False
        self.is_settled = False
        self._sessions = sessions
        self._key = key
        self._came: asyncio.Future[None] | None = None
        self._settled: asyncio.Future[None] | None = None

    async def come(self) -> None:
        """Return when the run may go."""
        if not self.has_come:
            self._came = asyncio.get_running_loop().create_future()
            await self._came

    def give(self) -> None:
        """For the sessions alone: let the run go."""
        self.has_come = True
        if self._came is not None and not self._came.done():
            self._came.set_result(None)

    def settle(self) -> None:
        """Say that it is known what became of the run's acceptance."""
        self.is_settled = True
        if self._settled is not None:
            self._settled.set_result(None)

    async def settled(self) -> None:
        """Return once that is known."""
        if not self.is_settled:
            if self._settled is None:
                self._settled = asyncio.get_running_loop().create_future()
            # Many may wait for it.
            await asyncio.shield(self._settled)

    def leave(self) -> None:
        """Say that the run has ended, or never began. May be called again."""
        if not self.is_settled:
            self.settle()
        self._sessions.left(self._key, self)


class Sessions:
    """The lines of all sessions that have runs."""

    def __init__(self) -> None:
        self._lines: dict[str, list[Turn]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, key: str) -> Sequence[Turn]:
        """Return the runs of a session that have not ended, in the order in which they came."""
        return self._lines.get(key, ())

    def enter(
        self, key: str, run_id: str, *, in_order: bool, came_at: datetime, came_before: bool = False
    ) -> Turn:
        """Return the turn of a run.

        Args:
            key: The session.
            run_id: The run.
            in_order: Whether it waits for what came before it.
            came_at: When it came.
            came_before: It came to a host that is gone: it goes before those that wait here and
                came later.
        """
        turn = Turn(self, key, run_id, came_at)
        line = self._lines.setdefault(key, [])
        place = len(line)
        while came_before and place and _is_behind(line[place - 1], turn):
            place -= 1
        line.insert(place, turn)
        if not in_order or place == 0:
            turn.give()
        return turn

    async def settle(self, key: str) -> None:
        """Return once it is known of every run of a session that it is accepted."""
        while unsettled := [turn for turn in self.line(key) if not turn.is_settled]:
            await unsettled[-1].settled()

    def left(self, key: str, turn: Turn) -> None:
        """Take a run out of its line, and let the next one go; nothing if it is out of it."""
        line = self._lines.get(key, [])
        if turn in line:
            line.remove(turn)
            if not line:
                del self._lines[key]
            elif not line[0].has_come:
                line[0].give()


def _is_behind(waiting: Turn, turn: Turn) -> bool:
    return not waiting.has_come and (waiting.came_at, waiting.run_id) > (turn.came_at, turn.run_id)
