"""The threads that do a blob store's work on files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from stores.errors import StoreClosed, StoreUnavailable

T = TypeVar("T")


class BlobThreads:
    """Runs calls in threads of its own, so that nothing else waits behind slow files.

    Its methods belong to the event loop.
    """

    def __init__(self, most: int) -> None:
        """Take how many there may be; they start when there is work."""
        self._executor = ThreadPoolExecutor(most, thread_name_prefix="runmesh-blobs")
        self._closed = False

    def start(self, purpose: str, call: Callable[[], T]) -> asyncio.Future[T]:
        """Start a call, and return a future of what it returns.

        The call is made even if nobody waits for it any more.

        Args:
            purpose: What it does, for the error: `write a blob`.
            call: What to do; its `OSError` becomes `StoreUnavailable`.

        Raises:
            StoreClosed: The threads were closed.
        """
        if self._closed:
            raise StoreClosed
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._executor, _told, purpose, call)

    async def run(self, purpose: str, call: Callable[[], T]) -> T:
        """Make a call and return what it returns; see `start`."""
        return await self.start(purpose, call)

    async def close(self) -> None:
        """Finish the calls that were started. May be called again."""
        self._closed = True
        await asyncio.to_thread(self._executor.shutdown)


def _told(purpose: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except OSError as error:
        # Without the path: it is the host's own, and the message may travel.
        raise StoreUnavailable(f"cannot {purpose}: {error.strerror or error}") from error
