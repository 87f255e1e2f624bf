"""Artifacts on SQL and a blob store."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

import sqlalchemy as sa

from stores.artifacts import GRACE_SECONDS, MOST_BYTES
from stores.blobs.names import BlobName
from stores.blobs.reading import stream
from stores.blobs.store import BlobStore, Declared, StagedBlob
from stores.errors import AlreadyExists, InvalidRecord, StoreUnavailable
from stores.records import ArtifactHeader, ArtifactRecord, Collected, Page
from stores.sql.adopting import Adoption
from stores.sql.artifact_rows import artifact_record, artifact_row
from stores.sql.connection import Connection, Row, Values
from stores.sql.journal import SqlJournal
from stores.sql.orphans import Orphans, delete_artifacts, touch
from stores.sql.readers import Readers
from stores.sql.rows import Encoded
from stores.sql.tables import artifacts, blobs, is_living
from stores.sql.values import (
    INTEGER_MAX,
    check_ids,
    check_keys,
    check_limit,
    microseconds,
    time,
)

_columns = [column for column in artifacts.c if column is not artifacts.c.blob_name]
_is_artifact = artifacts.c.artifact_id == sa.bindparam("of_artifact")
_is_alive = sa.or_(artifacts.c.expires_at.is_(None), artifacts.c.expires_at > sa.bindparam("now"))
_order = (artifacts.c.created_at, artifacts.c.artifact_id)
_select = sa.select(*_columns, blobs.c.sha256, blobs.c.size_bytes, artifacts.c.blob_name).join(
    blobs
)

_SIZE = len(_columns) + 1
_BLOB = _SIZE + 1

_SELECT = _select.where(_is_artifact, _is_alive)
_FIND = sa.select(artifacts.c.blob_name).where(_is_artifact)
_INSERT = sa.insert(artifacts)
_SELECT_BEFORE = (
    sa.select(artifacts.c.artifact_id)
    .where(
        artifacts.c.workspace == sa.bindparam("of_workspace"),
        artifacts.c.created_at < sa.bindparam("before"),
    )
    .order_by(*_order)
    .limit(sa.bindparam("most"))
)

_FIND_BLOB = sa.select(blobs.c.name).where(blobs.c.sha256 == sa.bindparam("of_sha256"), is_living)
_IS_LIVING = sa.select(blobs.c.name).where(blobs.c.name == sa.bindparam("of_blob"), is_living)
_INSERT_BLOB = sa.insert(blobs)


def _page(column: sa.Column[str]) -> sa.Select[tuple[object, ...]]:
    return (
        _select.where(
            column == sa.bindparam("of"),
            _is_alive,
            sa.tuple_(*_order)
            > sa.tuple_(sa.bindparam("after_time"), sa.bindparam("after_artifact")),
        )
        .order_by(*_order)
        .limit(sa.bindparam("most"))
    )


_PAGE_OF_RUN = _page(artifacts.c.run_id)
_PAGE_OF_CONVERSATION = _page(artifacts.c.conversation_key)
_PAGE_OF_WORKSPACE = _page(artifacts.c.workspace)


class SqlArtifacts:
    """Implements `stores.artifacts.Artifacts`."""

    def __init__(
        self,
        *,
        journal: SqlJournal,
        readers: Readers,
        blobs: BlobStore | None,
        clock: Callable[[], datetime],
    ) -> None:
        """Take the ways to write and to read, and where the bytes are."""
        self._journal = journal
        self._readers = readers
        self._blob_store = blobs
        self._clock = clock

    async def write(
        self,
        header: ArtifactHeader,
        chunks: AsyncIterable[bytes],
        *,
        size_bytes: int | None = None,
        sha256: bytes | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> ArtifactRecord:
        """Store an artifact; see the protocol."""
        row = artifact_row(header)
        # Told before the bytes are sent; the insertion looks again.
        if await self._readers.first(_FIND, {"of_artifact": header.artifact_id}) is not None:
            raise AlreadyExists("artifact", "artifact_id")
        declared = Declared(most_bytes=most_bytes, size_bytes=size_bytes, sha256=sha256)
        async with self._blobs.stage(chunks, declared) as staged:
            name = await self._claim(staged)
            await self._blobs.publish(staged, name)
            await self._insert(row, name)
            return artifact_record((*row.values(), staged.sha256, staged.size_bytes))

    async def _claim(self, staged: StagedBlob) -> BlobName:
        new = BlobName.new(staged.sha256)
        now = self._now()
        row = {
            "name": new.text,
            "sha256": staged.sha256,
            "size_bytes": staged.size_bytes,
            "touched_at": now,
            "condemned_at": None,
        }

        def work(connection: Connection) -> str:
            found = connection.first(_FIND_BLOB, {"of_sha256": staged.sha256})
            if found is None:
                connection.run(_INSERT_BLOB, row)
                return new.text
            touch(connection, [found[0]], now)
            return str(found[0])

        return BlobName(await self._journal.submit(work))

    async def _insert(self, row: Encoded, name: BlobName) -> None:
        of_artifact = {"of_artifact": row["artifact_id"]}

        def work(connection: Connection) -> bool:
            if connection.first(_FIND, of_artifact) is not None:
                raise AlreadyExists("artifact", "artifact_id")
            if connection.first(_IS_LIVING, {"of_blob": name.text}) is None:
                return False
            connection.run(_INSERT, {**row, "blob_name": name.text})
            return True

        if not await self._journal.submit(work):
            raise StoreUnavailable(
                "publishing the bytes of an artifact took longer than the grace of orphans, and "
                "they were collected: write it again"
            )

    async def get(self, artifact_id: str) -> ArtifactRecord | None:
        """Return what is known of an artifact, or `None`."""
        found = await self._find(artifact_id)
        return None if found is None else artifact_record(found)

    async def read(self, artifact_id: str, *, offset: int, length: int) -> bytes | None:
        """Return a range of an artifact's bytes; see the protocol."""
        _check_range(offset, length)
        found = await self._find(artifact_id)
        if found is None:
            return None
        cut = _cut(found, offset, length)
        return await self._blobs.read(_blob_of(found), offset, cut) if cut else b""

    async def open(
        self, artifact_id: str, *, offset: int = 0, length: int | None = None
    ) -> tuple[ArtifactRecord, AsyncIterator[bytes]] | None:
        """Return an artifact and an iterator over its bytes; see the protocol."""
        _check_range(offset, length or 0)
        found = await self._find(artifact_id)
        if found is None:
            return None
        cut = _cut(found, offset, length)
        chunks = stream(self._blobs, _blob_of(found), offset=offset, length=cut)
        return artifact_record(found), chunks

    async def _find(self, artifact_id: str) -> Row | None:
        return await self._readers.first(_SELECT, {"of_artifact": artifact_id, "now": self._now()})

    async def list_of_run(
        self, run_id: str, *, after: str | None = None, limit: int = 100
    ) -> Page[ArtifactRecord, str]:
        """Return artifacts that a run created; see the protocol."""
        return await self._read_page(_PAGE_OF_RUN, run_id, after, limit)

    async def list_of_conversation(
        self, conversation_key: str, *, after: str | None = None, limit: int = 100
    ) -> Page[ArtifactRecord, str]:
        """Return artifacts of a conversation; see the protocol."""
        return await self._read_page(_PAGE_OF_CONVERSATION, conversation_key, after, limit)

    async def list_of_workspace(
        self, workspace: str, *, after: str | None = None, limit: int = 100
    ) -> Page[ArtifactRecord, str]:
        """Return artifacts of a workspace; see the protocol."""
        return await self._read_page(_PAGE_OF_WORKSPACE, workspace, after, limit)

    async def _read_page(
        self, statement: sa.Select[tuple[object, ...]], of: str, after: str | None, limit: int
    ) -> Page[ArtifactRecord, str]:
        check_limit(limit)
        # One more tells whether there are more.
        values = {"of": of, "now": self._now(), "most": limit + 1, **_parse(after)}
        rows = await self._readers.all(statement, values)
        items = tuple(artifact_record(row) for row in rows[:limit])
        return Page(items, _cursor(items[-1]) if len(rows) > limit else None)

    async def adopt(
        self, artifact_ids: Sequence[str], *, workspace: str, bot: str, conversation_key: str
    ) -> Sequence[str]:
        """Give artifacts that nobody has to a conversation; see the protocol."""
        check_ids("artifact", workspace=workspace, bot=bot)
        check_keys("artifact", conversation_key=conversation_key)
        return await self._journal.submit(
            Adoption(artifact_ids, workspace, bot, conversation_key, self._now())
        )

    async def delete(self, artifact_id: str) -> bool:
        """Delete an artifact; see the protocol."""
        if await self._find(artifact_id) is None:
            return False
        return await self._delete([artifact_id]) == 1

    async def delete_created_before(self, workspace: str, time: datetime, *, limit: int) -> int:
        """Delete the oldest artifacts of a workspace; see the protocol."""
        check_limit(limit)
        before = microseconds("artifact", "created_at", time)
        values = {"of_workspace": workspace, "before": before, "most": limit}
        rows = await self._readers.all(_SELECT_BEFORE, values)
        return await self._delete([row[0] for row in rows])

    async def _delete(self, artifact_ids: Sequence[str]) -> int:
        return await self._journal.submit(partial(delete_artifacts, artifact_ids, self._now()))

    async def collect_orphans(
        self, *, grace_seconds: float = GRACE_SECONDS, batch: int = 200
    ) -> Collected:
        """Delete expired artifacts and orphaned blobs; see the protocol."""
        check_limit(batch)
        orphans = Orphans(
            journal=self._journal,
            readers=self._readers,
            blobs=self._blobs,
            now=self._now,
            batch=batch,
        )
        await self._blobs.sweep()
        expired = await orphans.delete_expired(self._now())
        grace = timedelta(seconds=grace_seconds) // timedelta(microseconds=1)
        await orphans.condemn(untouched_since=self._now() - grace)
        blobs, size = await orphans.delete_condemned()
        return Collected(expired, blobs, size)

    @property
    def _blobs(self) -> BlobStore:
        if self._blob_store is None:
            raise StoreUnavailable(
                "there is no blob store: open the stores with blobs_url, such as "
                "file:///path/to/folder"
            )
        return self._blob_store

    def _now(self) -> int:
        return microseconds("clock", "now", self._clock())


def _check_range(offset: int, length: int) -> None:
    for field, value in (("offset", offset), ("length", length)):
        if value < 0:
            raise InvalidRecord("artifact range", field, f"must not be negative, is {value}")


def _cut(found: Row, offset: int, length: int | None) -> int:
    size: int = found[_SIZE]
    left = max(size - offset, 0)
    return left if length is None else min(length, left)


def _blob_of(found: Row) -> BlobName:
    return BlobName(found[_BLOB])


def _cursor(artifact: ArtifactRecord) -> str:
    created = microseconds("artifact", "created_at", artifact.created_at)
    return f"{created}:{artifact.artifact_id}"


def _parse(cursor: str | None) -> Values:
    if cursor is None:
        return {"after_time": -INTEGER_MAX, "after_artifact": ""}
    created, separator, artifact_id = cursor.partition(":")
    try:
        at = int(created)
        time(at)
    except (ValueError, OverflowError) as error:
        raise InvalidRecord("artifact page", "after", "must be a page's next_cursor") from error
    if not separator:
        raise InvalidRecord("artifact page", "after", "must be a page's next_cursor")
    return {"after_time": at, "after_artifact": artifact_id}
