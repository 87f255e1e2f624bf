"""A time limit for asynchronous tests that their event loop keeps.

pytest-timeout's signal cannot end a test that waits inside uvloop: its handler gets to run there,
and what it raises is lost. A test that hangs would hang for ever.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable

import pytest

# So much earlier than pytest-timeout, whose word is only heard outside of uvloop.
_MARGIN_SECONDS = 5.0

Test = Callable[..., Awaitable[None]]


def limit_asynchronous_tests(items: list[pytest.Item]) -> None:
    """Gives every asynchronous test the limit that pytest-timeout has for it, less a margin."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            marker = item.get_closest_marker("timeout")
            seconds = float(marker.args[0] if marker else item.config.getini("timeout"))
            item.obj = within(seconds - _MARGIN_SECONDS, item.obj)


def within(seconds: float, test: Test) -> Test:
    """Returns a test that fails when it takes longer."""

    @functools.wraps(test)
    async def limited(*args: object, **kwargs: object) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **kwargs)

    return limited
