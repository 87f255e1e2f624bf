"""Deleting what documents were dropped, in the background and in small transactions.

After each the collection rests as long as that took, so that hosts get at least half of the writer.
It is woken by what drops something and once in an hour, goes on at the next start where it was, and
may be done by several hosts at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TypeVar

import sqlalchemy as sa

from stores.errors import StoreError
from stores.knowledge import STAGED_GRACE_SECONDS
from stores.knowledge_records import CollectedKnowledge, DocumentStatus
from stores.sql.connection import Connection
from stores.sql.journal import SqlJournal, Work
from stores.sql.knowledge_blocks import IS_SWEEPABLE
from stores.sql.knowledge_writing import leave, release_artifact
from stores.sql.readers import Readers
from stores.sql.tables import (
    is_kept_base,
    knowledge_bases,
    knowledge_blocks,
    knowledge_chunks,
    knowledge_documents,
    knowledge_metadata,
    knowledge_postings,
    knowledge_ranges,
    knowledge_vectors,
    knowledge_versions,
)
from stores.sql.values import INTEGER_MAX

logger = logging.getLogger(__name__)

T = TypeVar("T")

# About how many rows a transaction deletes.
_BATCH = 256
# How often it looks for what was staged and left, and after how many microseconds that goes.
_LOOK_SECONDS = 3_600.0
_GRACE = int(STAGED_GRACE_SECONDS * 1_000_000)
_LEFT = "it was not taken in to its end: add it again"

_versions = knowledge_versions.c
_SELECT_REMOVED = (
    sa.select(knowledge_bases.c.number).where(knowledge_bases.c.removed_at.is_not(None)).limit(1)
)
_SELECT_OF_BASE = (
    sa.select(_versions.number).where(_versions.base == sa.bindparam("of_base")).limit(_BATCH)
)
_SELECT_DROPPED = sa.select(_versions.number).where(_versions.dropped).limit(_BATCH)
_SELECT_LEFT = (
    sa.select(_versions.number)
    .join(knowledge_documents, knowledge_documents.c.staged_version == _versions.number)
    .join(knowledge_bases, knowledge_bases.c.number == _versions.base)
    .where(
        is_kept_base,
        _versions.touched_at < sa.bindparam("before"),
        sa.or_(
            _versions.chunk_count > 0,
            knowledge_documents.c.status
            == sa.literal_column(f"'{DocumentStatus.INGESTING.value}'"),
        ),
    )
    .limit(_BATCH)
)
_SELECT_RANGES = (
    sa.select(knowledge_ranges.c.first, knowledge_ranges.c.count)
    .where(knowledge_ranges.c.version == sa.bindparam("of_version"))
    .limit(1)
)
_of_version: sa.BindParameter[int] = sa.bindparam("of_version")
_DELETE_RANGE = sa.delete(knowledge_ranges).where(
    knowledge_ranges.c.version == _of_version, knowledge_ranges.c.first == sa.bindparam("of_first")
)
_DELETE_CHUNKS = sa.delete(knowledge_chunks).where(
    knowledge_chunks.c.number >= sa.bindparam("of_first"),
    knowledge_chunks.c.number < sa.bindparam("of_end"),
)
_DELETE_VECTORS = sa.delete(knowledge_vectors).where(
    knowledge_vectors.c.number >= sa.bindparam("of_first"),
    knowledge_vectors.c.number < sa.bindparam("of_end"),
)
_DELETE_METADATA = sa.delete(knowledge_metadata).where(knowledge_metadata.c.version == _of_version)
_SELECT_ARTIFACT = sa.select(_versions.artifact_id).where(_versions.number == _of_version)
_DELETE_VERSION = sa.delete(knowledge_versions).where(_versions.number == _of_version)

_some_documents = (
    sa.select(knowledge_documents.c.number)
    .where(knowledge_documents.c.base == sa.bindparam("of_base"))
    .limit(_BATCH)
)
_DELETE_DOCUMENTS = sa.delete(knowledge_documents).where(
    knowledge_documents.c.number.in_(_some_documents)
)
_SELECT_BLOCK = (
    sa.select(knowledge_blocks.c.number)
    .where(knowledge_blocks.c.base == sa.bindparam("of_base"))
    .limit(1)
)
_some_terms = (
    sa.select(knowledge_postings.c.term)
    .where(knowledge_postings.c.block == sa.bindparam("of_block"))
    .order_by(knowledge_postings.c.term)
    .limit(_BATCH * 4)
)
_DELETE_POSTINGS = sa.delete(knowledge_postings).where(
    knowledge_postings.c.block == sa.bindparam("of_block"),
    knowledge_postings.c.term.in_(_some_terms),
)
_DELETE_BLOCK = sa.delete(knowledge_blocks).where(
    knowledge_blocks.c.number == sa.bindparam("of_block")
)
_DELETE_BASE = sa.delete(knowledge_bases).where(knowledge_bases.c.number == sa.bindparam("of_base"))
_SELECT_SWEEPABLE = (
    sa.select(knowledge_blocks.c.number)
    .where(IS_SWEEPABLE, knowledge_blocks.c.number > sa.bindparam("after"))
    .order_by(knowledge_blocks.c.number)
    .limit(1)
)


class KnowledgeCollector:
    """Collects when it is woken, and when it is asked to. It belongs to the event loop."""

    def __init__(self, *, journal: SqlJournal, readers: Readers, now: Callable[[], int]) -> None:
        """Take the ways to write and to read, and what tells the time; nothing is begun yet."""
        self._journal = journal
        self._readers = readers
        self._now = now
        self._woken = asyncio.Event()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to collect whenever there is something, first what an earlier process left."""
        self._woken.set()
        self._task = asyncio.create_task(self._run(), name="runmesh-knowledge-collector")

    def wake(self) -> None:
        """Say that something was dropped."""
        self._woken.set()

    async def stop(self) -> None:
        """End it where it is. May be called again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        looked_at = -INTEGER_MAX
        while True:
            # Not `wait_for`, which may lose a cancellation that comes together with a wake.
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._woken.wait()
            self._woken.clear()
            now = self._now()
            looks = now - looked_at >= _LOOK_SECONDS * 1_000_000
            try:
                await self.collect(left_before=now - _GRACE if looks else None)
            except StoreError as error:
                # It is tried again after a while, and when something else is dropped.
                logger.warning("rows of removed documents stay for now: %s", error)
            else:
                looked_at = now if looks else looked_at

    async def collect(self, *, left_before: int | None) -> CollectedKnowledge:
        """Delete what was dropped; before that, drop what was staged and left since a time."""
        async with self._turn:
            if left_before is not None:
                await self._drop_left(left_before)
            versions, chunks = await self._delete_bases()
            more = await self._delete_versions(_SELECT_DROPPED)
            await self._sweep()
        return CollectedKnowledge(versions + more[0], chunks + more[1])

    async def _drop_left(self, before: int) -> None:
        while rows := await self._readers.all(_SELECT_LEFT, {"before": before}):
            numbers = [row[0] for row in rows]
            await self._write(partial(_leave, numbers=numbers, now=self._now()))

    async def _delete_bases(self) -> tuple[int, int]:
        versions = chunks = 0
        while (row := await self._readers.first(_SELECT_REMOVED, {})) is not None:
            of_base = {"of_base": row[0]}
            deleted = await self._delete_versions(_SELECT_OF_BASE, of_base=row[0])
            versions, chunks = versions + deleted[0], chunks + deleted[1]
            while await self._write(lambda c, of=of_base: c.run(_DELETE_DOCUMENTS, of)):  # type: ignore[misc]
                pass
            while (block := await self._readers.first(_SELECT_BLOCK, of_base)) is not None:
                await self._delete_block(block[0])
            await self._write(lambda c, of=of_base: c.run(_DELETE_BASE, of))  # type: ignore[misc]
        return versions, chunks

    async def _delete_block(self, number: int) -> None:
        of_block = {"of_block": number}
        while await self._write(lambda connection: connection.run(_DELETE_POSTINGS, of_block)):
            pass
        await self._write(lambda connection: connection.run(_DELETE_BLOCK, of_block))

    async def _delete_versions(
        self, statement: sa.Select[tuple[int]], **values: int
    ) -> tuple[int, int]:
        versions = chunks = 0
        while rows := await self._readers.all(statement, values):
            numbers = [row[0] for row in rows]
            while numbers:
                work = partial(_delete_versions, numbers=numbers, now=self._now())
                done, deleted = await self._write(work)
                versions, chunks = versions + done, chunks + deleted
                numbers = numbers[done:]
        return versions, chunks

    async def _sweep(self) -> None:
        after = 0
        while (row := await self._readers.first(_SELECT_SWEEPABLE, {"after": after})) is not None:
            # Only here, since it takes a while to import what it works with.
            from stores.sql.knowledge_sweeping import begin_sweep

            after = row[0]
            sweep = await self._write(partial(begin_sweep, number=after))
            while sweep is not None:
                sweep = await self._write(sweep.go_on)

    async def _write(self, work: Work[T]) -> T:
        await self._journal.room()
        started = perf_counter()
        result = await self._journal.submit(work)
        await asyncio.sleep(perf_counter() - started)
        return result


def _leave(connection: Connection, *, numbers: Sequence[int], now: int) -> None:
    for number in numbers:
        leave(connection, number, _LEFT, now)


def _delete_versions(
    connection: Connection, *, numbers: Sequence[int], now: int
) -> tuple[int, int]:
    """Delete versions, one after the other; return how many are done, and how many chunks went.

    It ends when so many rows were deleted: a version of many chunks takes several transactions.
    """
    chunks = 0
    for done, number in enumerate(numbers):
        of_version = {"of_version": number}
        while (found := connection.first(_SELECT_RANGES, of_version)) is not None:
            if chunks + done >= _BATCH:
                return done, chunks
            first, count = found
            places = {"of_first": first, "of_end": first + count}
            connection.run(_DELETE_VECTORS, places)
            chunks += connection.run(_DELETE_CHUNKS, places)
            connection.run(_DELETE_RANGE, {**of_version, "of_first": first})
        artifact = connection.first(_SELECT_ARTIFACT, of_version)
        connection.run(_DELETE_METADATA, of_version)
        connection.run(_DELETE_VERSION, of_version)
        if artifact is not None:
            release_artifact(connection, artifact[0], now)
    return len(numbers), chunks
