"""The notice that a run should stop: one flag that coroutines and threads can wait for."""

import asyncio
import threading


class Interruption:
    """Says that the run should stop, and why.

    True once it should. `if ctx.interrupted: ...` works in coroutines and threads alike.
    """

    __slots__ = ("_event", "_reason", "_thread_event")

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._thread_event = threading.Event()
        self._reason = ""

    def __bool__(self) -> bool:
        return self._thread_event.is_set()

    @property
    def reason(self) -> str:
        """Why: `cancelled`, `follow_up`, `shutdown`, `deadline`, or another word; empty before."""
        return self._reason

    async def wait(self) -> str:
        """Waits until the run should stop, and returns the reason."""
        await self._event.wait()
        return self._reason

    def wait_blocking(self, timeout_seconds: float | None = None) -> bool:
        """For a plain `def run`: waits in its thread; returns whether the run should stop."""
        return self._thread_event.wait(timeout_seconds)

    def notify(self, reason: str) -> None:
        """Gives the notice, once; for the SDK, on its event loop."""
        if self._thread_event.is_set():
            return
        self._reason = reason
        self._thread_event.set()
        self._event.set()
