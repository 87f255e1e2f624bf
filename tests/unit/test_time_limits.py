"""Tests of `tests.time_limits`: a test that hangs fails, and keeps what pytest knows it by."""

import asyncio
import inspect

import pytest

from tests.time_limits import within


async def hangs(number: int) -> None:
    await asyncio.Event().wait()


async def test_test_that_hangs_fails_in_time() -> None:
    with pytest.raises(TimeoutError):
        await within(0.01, hangs)(1)


async def test_test_keeps_its_name_and_its_fixtures() -> None:
    limited = within(0.01, hangs)
    assert limited.__name__ == "hangs"
    assert list(inspect.signature(limited).parameters) == ["number"]
