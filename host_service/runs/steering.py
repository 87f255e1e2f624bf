"""Input for a run that is under way: what its runner may take up in the middle of it.

What flows where::

    an event, accepted with a run of its own ── hand ──> box of the active run ── read ──> runner
    its own run: waits for its fate <── acknowledged: taken up, it ends
                                    <── the active run has ended: it goes as any other

Whatever is in a box is in the ledger as a run that waits, so that nothing is lost with the host.
Its fate is decided once, on the host's loop: an item that was acknowledged never runs, one that was
not runs once. An item is read again by whoever reads anew: a stream may break before its reader has
got it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from host_service.errors import NotFound
from host_service.registry.pulse import Pulse
from host_service.runs.event import Event
from stores.records import RunRecord


@dataclass(eq=False, slots=True)
class SteeredItem:
    """An event that was handed to an active run.

    Attributes:
        run_id: Its own run, which is the item's id as well.
        event: The event.
        ended: Done when its own run has ended.
        fate: True once it was taken up, False once it will not be.
        number: Its place among the items of the active run.
        box: Where it waits.
    """

    run_id: str
    event: Event
    ended: asyncio.Future[RunRecord]
    fate: asyncio.Future[bool] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    number: int = 0
    box: SteeringBox | None = None

    def withdraw(self) -> None:
        """Take it back: its own run is ended otherwise, or goes."""
        if self.box is not None:
            self.box.take_back(self)

    def decide(self, *, taken_up: bool) -> None:
        """Say what becomes of it; the first word holds."""
        if not self.fate.done():
            self.fate.set_result(taken_up)


class SteeringBox:
    """What was handed to one active run. It ends with the run.

    Args:
        warn: Tells whoever looks at the run, by a code and a text.
    """

    def __init__(self, *, warn: Callable[[str, str], None]) -> None:
        self.warn = warn
        self._waiting: dict[str, SteeredItem] = {}
        self._ending: dict[str, SteeredItem] = {}
        self._ids: set[str] = set()
        self._count = 0
        self._readers = 0
        self._closed = False
        self._news = Pulse()

    def hand(self, item: SteeredItem) -> bool:
        """Put an item in; one that comes too late is left to its own run. Return which it was."""
        if self._closed:
            item.decide(taken_up=False)
            return False
        self._count += 1
        item.number, item.box = self._count, self
        self._ids.add(item.run_id)
        self._waiting[item.run_id] = item
        self._news.beat()
        return True

    def take_back(self, item: SteeredItem) -> None:
        """Take an item out that was not acknowledged."""
        self._waiting.pop(item.run_id, None)

    async def read(self) -> AsyncGenerator[SteeredItem, None]:
        """Yield what was not acknowledged, oldest first, then what comes, until the run ends.

        There is one reader at a time: a new one ends the one before it, whose stream is taken for
        broken.
        """
        self._readers += 1
        me, seen = self._readers, 0
        self._news.beat()
        while not self._closed and me == self._readers:
            item = next((each for each in self._waiting.values() if each.number > seen), None)
            if item is None:
                await self._news.wait()
            else:
                seen = item.number
                yield item

    def acknowledge(self, item_ids: Sequence[str]) -> list[SteeredItem]:
        """Take items out as taken up, all or none; return those whose own runs have yet to end.

        Raises:
            NotFound: One of them was never handed to this run.
        """
        for item_id in item_ids:
            if item_id not in self._ids:
                raise NotFound("steering item", item_id)
        for item_id in item_ids:
            item = self._waiting.pop(item_id, None)
            if item is not None:
                self._take_up(item)
        return [self._ending[item_id] for item_id in item_ids if item_id in self._ending]

    def _take_up(self, item: SteeredItem) -> None:
        self._ending[item.run_id] = item
        item.ended.add_done_callback(lambda _: self._ending.pop(item.run_id, None))
        item.decide(taken_up=True)

    def close(self) -> None:
        """End the readers, and leave what was not acknowledged to its own runs, oldest first."""
        self._closed = True
        waiting, self._waiting = self._waiting, {}
        for item in waiting.values():
            item.decide(taken_up=False)
        self._news.beat()
