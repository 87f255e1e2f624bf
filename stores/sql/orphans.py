"""Deleting artifacts and the blobs that no artifact refers to, a few at a time.

A blob goes by these steps, each of which may be the last that this process does::

    no artifact refers to it --condemn--> nobody is given it --delete--> no bytes --forget--> no row

Candidates are found by the readers, in the order of their names, so that the writer is not held up
by however many blobs there are; a transaction then looks again at each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import sqlalchemy as sa

from stores.blobs.names import BlobName
from stores.blobs.store import BlobStore
from stores.sql.connection import Connection, Row
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from stores.sql.tables import artifacts, blobs, is_condemned, is_living

_is_artifact = artifacts.c.artifact_id == sa.bindparam("of_artifact")
_is_blob = blobs.c.name == sa.bindparam("of_blob")
_is_referred_to = sa.exists().where(artifacts.c.blob_name == blobs.c.name)
_is_untouched = blobs.c.touched_at < sa.bindparam("untouched_since")

_SELECT_EXPIRED = (
    sa.select(artifacts.c.artifact_id)
    .where(artifacts.c.expires_at.is_not(None), artifacts.c.expires_at <= sa.bindparam("now"))
    .order_by(artifacts.c.expires_at)
    .limit(sa.bindparam("most"))
)
_FIND = sa.select(artifacts.c.blob_name).where(_is_artifact)
_DELETE = sa.delete(artifacts).where(_is_artifact)
_TOUCH = (
    sa.update(blobs)
    .where(_is_blob, blobs.c.touched_at < sa.bindparam("at"))
    .values(touched_at=sa.bindparam("at"))
)
_SELECT_UNTOUCHED = (
    sa.select(blobs.c.name, _is_referred_to)
    .where(blobs.c.name > sa.bindparam("after"), is_living, _is_untouched)
    .order_by(blobs.c.name)
    .limit(sa.bindparam("most"))
)
_CONDEMN = (
    sa.update(blobs)
    .where(_is_blob, is_living, _is_untouched, sa.not_(_is_referred_to))
    .values(condemned_at=sa.bindparam("at"))
)
_SELECT_CONDEMNED = (
    sa.select(blobs.c.name, blobs.c.size_bytes)
    .where(is_condemned)
    .order_by(blobs.c.name)
    .limit(sa.bindparam("most"))
)
_FORGET = sa.delete(blobs).where(_is_blob, is_condemned)


def touch(connection: Connection, names: Iterable[str], at: int) -> None:
    """Note that blobs are wanted, or were until now: their grace begins anew."""
    connection.run_many(_TOUCH, [{"of_blob": name, "at": at} for name in names])


def delete_artifacts(artifact_ids: Iterable[str], now: int, connection: Connection) -> int:
    """Delete artifacts, and return how many there were; the grace of their blobs begins."""
    deleted = 0
    for artifact_id in artifact_ids:
        row = connection.first(_FIND, {"of_artifact": artifact_id})
        if row is not None:
            connection.run(_DELETE, {"of_artifact": artifact_id})
            touch(connection, row, now)
            deleted += 1
    return deleted


class Orphans:
    """One collection."""

    def __init__(
        self,
        *,
        journal: SqlJournal,
        readers: Readers,
        blobs: BlobStore,
        now: Callable[[], int],
        batch: int,
    ) -> None:
        """Take the ways to write and to read, and how much to do at once."""
        self._journal = journal
        self._readers = readers
        self._blobs = blobs
        self._now = now
        self._batch = batch

    async def delete_expired(self, now: int) -> int:
        """Delete the artifacts that have expired, and return how many."""
        deleted = 0
        while rows := await self._read(_SELECT_EXPIRED, now=now):
            work = partial(delete_artifacts, [row[0] for row in rows], self._now())
            deleted += await self._journal.submit(work)
        return deleted

    async def condemn(self, *, untouched_since: int) -> None:
        """Condemn the blobs that no artifact refers to and that were not touched since a time."""
        after = ""
        while rows := await self._read(
            _SELECT_UNTOUCHED, after=after, untouched_since=untouched_since
        ):
            names = [name for name, is_referred_to in rows if not is_referred_to]
            if names:
                await self._journal.submit(partial(self._condemn, names, untouched_since))
            after = rows[-1][0]

    def _condemn(self, names: Sequence[str], untouched_since: int, connection: Connection) -> None:
        values = {"untouched_since": untouched_since, "at": self._now()}
        connection.run_many(_CONDEMN, [{"of_blob": name, **values} for name in names])

    async def delete_condemned(self) -> tuple[int, int]:
        """Delete condemned blobs, those of earlier collections as well: how many, of what size."""
        count = size = 0
        while rows := await self._read(_SELECT_CONDEMNED):
            for name, size_bytes in rows:
                await self._blobs.delete(BlobName(name))
                count += 1
                size += size_bytes
            await self._journal.submit(partial(_forget, [row[0] for row in rows]))
        return count, size

    async def _read(self, statement: sa.Select[tuple[object, ...]], **values: object) -> list[Row]:
        return await self._readers.all(statement, {"most": self._batch, **values})


def _forget(names: Sequence[str], connection: Connection) -> None:
    connection.run_many(_FORGET, [{"of_blob": name} for name in names])
