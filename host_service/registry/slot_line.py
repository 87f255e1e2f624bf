"""Who waits for a slot of a plugin's instances, in the order in which they came.

A slot that is freed is told to one who waits, and not to all: with a thousand waiting, each end of
a run would wake them all for nothing. Who is told looks; if it cannot use the slot (its session is
on another instance), it passes the news on to the next. What changes for all is told to all.
"""

import asyncio
from bisect import bisect_left, bisect_right
from operator import attrgetter

_number_of = attrgetter("number")


class Ticket:
    """One who waits. Made by `SlotLine.join`; to be left.

    Attributes:
        number: Counts those who came.
        is_told: Whether it was told something that it has not looked at yet.
    """

    __slots__ = ("is_told", "news", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_told = False
        self.news: asyncio.Future[None] | None = None


class SlotLine:
    """All who wait for a slot of one plugin."""

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []
        self._came = 0
        self._told = 0

    def __len__(self) -> int:
        return len(self._tickets)

    @property
    def is_promised(self) -> bool:
        """Whether somebody was told of a slot and has not looked yet: who comes now is behind."""
        return self._told > 0

    def join(self) -> Ticket:
        """Wait from now on, behind all who wait."""
        self._came += 1
        ticket = Ticket(self._came)
        self._tickets.append(ticket)
        return ticket

    async def news(self, ticket: Ticket) -> None:
        """Return once there is something to look at."""
        if not ticket.is_told:
            ticket.news = asyncio.get_running_loop().create_future()
            await ticket.news

    def look(self, ticket: Ticket) -> None:
        """Say that what it was told is being looked at."""
        if ticket.is_told:
            ticket.is_told = False
            self._told -= 1

    def tell_next(self, after: Ticket | None = None) -> None:
        """Tell the first who has nothing to look at: of all, or of those behind one."""
        begin = bisect_right(self._tickets, after.number, key=_number_of) if after else 0
        for index in range(begin, len(self._tickets)):
            ticket = self._tickets[index]
            if not ticket.is_told:
                self._tell(ticket)
                return

    def tell_all(self) -> None:
        """Tell everybody."""
        for ticket in self._tickets:
            if not ticket.is_told:
                self._tell(ticket)

    def leave(self, ticket: Ticket) -> None:
        """Wait no more."""
        self.look(ticket)
        del self._tickets[bisect_left(self._tickets, ticket.number, key=_number_of)]

    def _tell(self, ticket: Ticket) -> None:
        ticket.is_told = True
        self._told += 1
        if ticket.news is not None and not ticket.news.done():
            ticket.news.set_result(None)
