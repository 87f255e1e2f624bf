"""A runner whose runs a test lets go one by one, by what was said to them."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

from runmesh.v1 import event_pb2, run_pb2

from host_service.runs.event import Event
from tests.unit.runs.runner import END
from tests.unit.runs.samples import a_delta, an_event

Payloads = AsyncIterator[dict[str, Any]]


def said(text: str, *, room: str = "room", **changes: Any) -> Event:
    """Return a message whose id is its text."""
    fields: dict[str, Any] = {
        "event_id": text,
        "conversation_id": room,
        "input": event_pb2.EventInput(text=text),
    }
    return an_event(**(fields | changes))


class Desk:
    """Answers what was said with the same, once it is told to.

    Attributes:
        began: What was said to its runs, in the order in which they began.
        ended: Likewise, of those that went to their end.
        most: How many were under way at once, at most, by session.
        homes: The instance of each run, by session.
    """

    def __init__(self, *, waits: bool = True) -> None:
        self._waits = waits
        self._go: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._news = asyncio.Condition()
        self._under_way: defaultdict[str, int] = defaultdict(int)
        self.began: list[str] = []
        self.ended: list[str] = []
        self.most: defaultdict[str, int] = defaultdict(int)
        self.homes: defaultdict[str, set[str]] = defaultdict(set)

    def let_go(self, *texts: str) -> None:
        """Let runs end."""
        for text in texts:
            self._go[text].set()

    async def has_begun(self, *texts: str) -> None:
        """Return once runs of these have begun."""
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(lambda: set(texts) <= set(self.began))

    async def script(self, request: run_pb2.RunRequest) -> Payloads:
        """What its runner does."""
        session, text = request.context.session_key, request.context.input.text
        self.homes[session].add(request.host_access.instance_token)
        self._under_way[session] += 1
        self.most[session] = max(self.most[session], self._under_way[session])
        self.began.append(text)
        async with self._news:
            self._news.notify_all()
        try:
            yield {"message_delta": a_delta(text)}
            if self._waits:
                await self._go[text].wait()
            self.ended.append(text)
        finally:
            self._under_way[session] -= 1
        yield END
