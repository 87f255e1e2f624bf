"""Waiting for what happens in other processes."""

import asyncio
import inspect
import time
from collections.abc import Callable

_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 20.0


def wait_until(condition: Callable[[], object], seconds: float = _PATIENCE_SECONDS) -> None:
    """Returns when a condition holds; fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds:g} s"
        time.sleep(_POLL_SECONDS)


async def eventually(condition: Callable[[], object], seconds: float = _PATIENCE_SECONDS) -> None:
    """Returns when a condition holds, which may be awaitable; other tasks go on meanwhile."""
    deadline = time.monotonic() + seconds
    while True:
        holds = condition()
        if inspect.isawaitable(holds):
            holds = await holds
        if holds:
            return
        assert time.monotonic() < deadline, f"it did not happen within {seconds:g} s"
        await asyncio.sleep(_POLL_SECONDS)
