"""Telling everybody who waits that something changed."""

import asyncio


class Pulse:
    """Wakes all who wait, in the order in which they came.

    Who looks at something and then waits, without awaiting anything between, misses no beat.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    def beat(self) -> None:
        """Wakes all who wait now."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        """Returns at the next beat."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await future
        finally:
            self._waiting.pop(future, None)
