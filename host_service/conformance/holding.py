"""Catching a runner at work: runs that are sure to be under way while something is looked at."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc.aio

from host_service.conformance.findings import Failed, Skipped
from host_service.conformance.recorded_run import RecordedRun
from host_service.conformance.samples import long_text

_LONG_BYTES = 1_900_000
# More than a window and what gRPC buffers beside it: whoever still has so much to say is at work.
_AT_WORK_BYTES = 512 * 1024
_LOOK_SECONDS = 0.5


class Way(enum.Enum):
    """How a run is held up."""

    CONFIG = "a configuration that makes it slow"
    HOST = "answers of the host that do not come"
    UNREAD = "results that nobody reads"


class Holding:
    """Holds runs up, in the way that works with the runner.

    Args:
        start: Starts a run.
        must_end: Waits for a run's end; Failed where it does not come.
        new_channel: Opens a connection of its own.
        slow_config: The configuration with which a run lasts; None where it is not known.
    """

    def __init__(
        self,
        *,
        start: Callable[..., Awaitable[RecordedRun]],
        must_end: Callable[[RecordedRun], Awaitable[None]],
        new_channel: Callable[[], grpc.aio.Channel],
        slow_config: Callable[[], Mapping[str, Any] | None],
    ) -> None:
        self._run = start
        self._must_end = must_end
        self._new_channel = new_channel
        self._slow_config = slow_config
        self._way: Way | None = None
        self._looked = False

    async def way(self) -> Way | None:
        """Which way works; None: none does. Found out once, with one or two runs."""
        if not self._looked:
            self._way = await self._find()
            self._looked = True
        return self._way

    async def hold(
        self,
        label: str,
        *,
        timeout_seconds: float | None = 60.0,
        deadline_seconds: float | None = 60.0,
    ) -> RecordedRun:
        """Starts a run that lasts until it is released or stopped; Skipped where none would."""
        way = await self.way()
        if way is None:
            raise Skipped(
                "the runner answers too quickly to be caught at work: name a configuration that "
                "makes a run last, with --slow-config"
            )
        run = await self._start(
            way, label, timeout_seconds=timeout_seconds, deadline_seconds=deadline_seconds
        )
        if way is Way.HOST:
            await _until_called(run)
        else:
            # As long as a runner may take to begin.
            await run.end(_LOOK_SECONDS / 2)
        return run

    def release(self, run: RecordedRun) -> None:
        """Lets a run go on, where the way it is held up allows it."""
        run.grant.released.set()
        run.reading.set()

    async def _start(self, way: Way, label: str, **how: Any) -> RecordedRun:
        if way is Way.CONFIG:
            return await self._run(label, config=self._slow_config(), **how)
        if way is Way.HOST:
            return await self._run(label, released=False, **how)
        # Of its own connection: what is unread must not hold up others.
        text = long_text(_LONG_BYTES)
        return await self._run(label, text, channel=self._new_channel(), reads=False, **how)

    async def _find(self) -> Way | None:
        if self._slow_config() is not None:
            return Way.CONFIG
        try:
            if await self._waits_for_host():
                return Way.HOST
            return Way.UNREAD if await self._waits_for_reader() else None
        except Failed:
            # That the run does not end is for the checks of plain runs to tell.
            return None

    async def _waits_for_host(self) -> bool:
        run = await self._start(Way.HOST, "does it call the host")
        await _until_called(run)
        called = run.grant.calls > 0 and not run.ended.is_set()
        self.release(run)
        await self._must_end(run)
        return called

    async def _waits_for_reader(self) -> bool:
        run = await self._start(Way.UNREAD, "does it wait for its reader")
        await asyncio.sleep(_LOOK_SECONDS)
        self.release(run)
        await self._must_end(run)
        return run.size_bytes > _AT_WORK_BYTES


async def _until_called(run: RecordedRun) -> None:
    """Returns when the run has called the host, has ended, or has had the time to do either."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + _LOOK_SECONDS
    while (  # noqa: ASYNC110 - whichever of three things comes first
        loop.time() < give_up_at and not run.grant.calls and not run.ended.is_set()
    ):
        await asyncio.sleep(0.01)
