"""What holds for tests with real processes: none of them waits for ever."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

# Less than the time that a test has at most, which nothing can enforce inside uvloop: a signal's
# handler does not get to raise there.
_LONGEST_SECONDS = 50.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives every asynchronous test in this folder a time limit that its event loop keeps."""
    for item in items:
        if isinstance(item, pytest.Function) and Path(__file__).parent in item.path.parents:
            marker = item.get_closest_marker("timeout")
            seconds = marker.args[0] if marker else _LONGEST_SECONDS
            if inspect.iscoroutinefunction(item.obj):
                item.obj = _within(seconds, item.obj)


def _within(seconds: float, test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def limited(*args: object, **kwargs: object) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **kwargs)

    return limited
