"""Whose turn it is with a model: so many at once, so many a minute, in order of arrival."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from host_service.errors import Overloaded

_MINUTE_SECONDS = 60.0


class Turns:
    """The line before one model.

    Whoever waits may leave at any time; nobody overtakes.

    Args:
        model_id: The model, for errors.
        most_waiting: How many may wait.
        monotonic: Tells seconds that only grow.
        sleep: Waits for seconds.
    """

    def __init__(
        self,
        *,
        model_id: str,
        most_waiting: int,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._at_once = 0
        self._a_minute = 0
        self._model_id = model_id
        self._most_waiting = most_waiting
        self._monotonic = monotonic
        self._sleep = sleep
        self._waiting = 0
        self._under_way = 0
        self._freed = asyncio.Event()
        # These locks are fair. They are two, so that a call that is under way and is sent again
        # does not wait for one that waits for it to end.
        self._line = asyncio.Lock()
        self._sending = asyncio.Lock()
        self._sent: deque[float] = deque()

    def allow(self, *, at_once: int, a_minute: int) -> None:
        """Go by these numbers from now on.

        Args:
            at_once: How many calls may be under way; 0: any number.
            a_minute: How many may be sent in any minute; 0: any number.
        """
        self._at_once = at_once
        self._a_minute = a_minute
        self._freed.set()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a place among the calls under way, and hold it.

        Raises:
            Overloaded: As many wait as may.
        """
        if self._waiting >= self._most_waiting:
            raise Overloaded(
                f"{self._waiting} calls wait for model {self._model_id!r}: try again later",
                facts={"resource": self._model_id, "limit": str(self._most_waiting)},
                retry_after_seconds=1.0,
            )
        self._waiting += 1
        try:
            async with self._line:
                while self._at_once and self._under_way >= self._at_once:
                    self._freed.clear()
                    await self._freed.wait()
                self._under_way += 1
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._freed.set()

    async def sending(self) -> None:
        """Wait until a request may be sent, and count it."""
        if not self._a_minute:
            return
        async with self._sending:
            while (wait := self._wait_seconds()) > 0:
                await self._sleep(wait)
            self._sent.append(self._monotonic())

    def _wait_seconds(self) -> float:
        now = self._monotonic()
        while self._sent and self._sent[0] <= now - _MINUTE_SECONDS:
            self._sent.popleft()
        if not self._a_minute or len(self._sent) < self._a_minute:
            return 0.0
        # Where fewer are allowed now than were, several must have gone by.
        return self._sent[-self._a_minute] + _MINUTE_SECONDS - now
