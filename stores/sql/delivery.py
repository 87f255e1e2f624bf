"""Outcomes on their way from a worker thread to the futures that wait in the event loop.

A wake-up of the loop costs more than what it brings, so outcomes travel together: one wake-up for
all that a thread has done in one turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

logger = logging.getLogger("runmesh.stores")


class Outcome(NamedTuple):
    """What became of one piece of work: a value, or an error.

    Attributes:
        future: Waits for what is durable.
        value: What the work returned.
        error: What went wrong instead.
        prepared: Waits for what the work returned, durable or not yet.
    """

    future: asyncio.Future[Any]
    value: Any
    error: Exception | None
    prepared: asyncio.Future[Any] | None = None


def announce(outcomes: Sequence[Outcome]) -> None:
    """Give outcomes that are not durable yet to who wants them; runs in the event loop."""
    for outcome in outcomes:
        prepared = outcome.prepared
        if prepared is None or prepared.done():
            continue
        if outcome.error is None:
            prepared.set_result(outcome.value)
        else:
            prepared.set_exception(outcome.error)
            # It counts as taken: the other future tells the same error to who must know.
            prepared.exception()


def settle(outcomes: Sequence[Outcome]) -> None:
    """Give each outcome to its futures; runs in the event loop."""
    announce(outcomes)
    for outcome in outcomes:
        future = outcome.future
        if future.done():
            _tell_lost(future, outcome.error)
        elif outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.value)


def _tell_lost(future: asyncio.Future[Any], error: Exception | None) -> None:
    # A waiter that was cancelled took its future along; an error must not vanish with it.
    if error is not None and future.cancelled():
        logger.error("work failed whose waiter was cancelled", exc_info=error)


def wake(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    """Call something in the event loop from a thread."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        # The loop is closed: nobody waits there any more, and what was written is written.
        logger.warning("the event loop was closed before the stores were")
