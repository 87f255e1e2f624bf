"""Indexing the vectors of large knowledge bases in the background, where the database can.

What flows where::

    a document is finished, vectors are set --> woken --> a thread looks, and fills --> tables of
                                                          the dialect's own --> searches use them

Searches never wait for it: what is not indexed yet is compared one by one. Several hosts may do it;
the dialect lets one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import perf_counter

from stores.errors import StoreError
from stores.limits import StoreLimits
from stores.sql.connection import Database
from stores.sql.dialect import Stopping

logger = logging.getLogger(__name__)

# How often it looks without being woken: another host may have ended in the middle.
_LOOK_SECONDS = 600.0
# Between looks: documents often come one after the other.
_REST_SECONDS = 1.0


class VectorIndexer:
    """Indexes when it is woken. It belongs to the event loop."""

    def __init__(self, *, database: Database, limits: StoreLimits) -> None:
        """Take the database; nothing is begun yet."""
        self._database = database
        self._limits = limits
        self._woken = asyncio.Event()
        self._stopping = Stopping()
        self._stopped = asyncio.Event()
        self._told: str | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, where the database can, with what an earlier process left."""
        if self._database.dialect.indexes_vectors:
            self._woken.set()
            self._task = asyncio.create_task(self._run(), name="runmesh-vector-indexer")

    def wake(self) -> None:
        """Say that documents or vectors came or went."""
        self._woken.set()

    async def stop(self) -> None:
        """End it after the block that it is at. May be called again."""
        self._stopped.set()
        self._woken.set()
        if self._task is not None:
            await asyncio.to_thread(self._stopping.stop)
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while not self._stopped.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._woken.wait()
            if self._stopped.is_set():
                return
            self._woken.clear()
            started = perf_counter()
            await asyncio.to_thread(self._look)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(_REST_SECONDS, perf_counter() - started)):
                    await self._stopped.wait()

    def _look(self) -> None:
        try:
            why_not = self._database.dialect.index_vectors(
                self._database.engine, self._limits, self._stopping
            )
        except Exception as error:  # noqa: BLE001 - searches are right without it
            if self._stopping.is_set:
                return
            meaning = error if isinstance(error, StoreError) else self._database.meaning(error)
            why_not = f"indexing them failed: {meaning}"
        if why_not is not None and why_not != self._told:
            logger.warning("vectors are compared without the database: %s", why_not)
        self._told = why_not
