"""Looking at a database and its blob store: see `stores.inspection`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TypeVar

import sqlalchemy as sa

from stores.actions import ActionStatus
from stores.blobs.names import BlobName
from stores.inspected import BlobsReport, DatabaseReport
from stores.sql.connection import Connection, Database, Row
from stores.sql.knowledge_blocks import BLOCK_SIZE
from stores.sql.opening import open_blob_store, open_database
from stores.sql.tables import (
    actions,
    artifacts,
    blobs,
    hosts,
    is_active,
    is_open_action,
    knowledge_blocks,
    runs,
    secrets,
)
from stores.sql.values import microseconds

T = TypeVar("T")

_SECOND = 1_000_000

_LIVING_HOSTS = (
    sa.select(hosts.c.host_id)
    .where(hosts.c.lease_until > sa.bindparam("now"))
    .order_by(hosts.c.host_id)
)
_LOST_HOSTS = (
    sa.select(runs.c.host_id)
    .distinct()
    .outerjoin(hosts, hosts.c.host_id == runs.c.host_id)
    .where(
        is_active,
        sa.or_(hosts.c.host_id.is_(None), hosts.c.lease_until <= sa.bindparam("now")),
    )
    .order_by(runs.c.host_id)
)
_NEWEST = sa.select(sa.func.max(runs.c.created_at))
_AWAITING = sa.select(sa.func.count(), sa.func.min(actions.c.requested_at)).where(
    is_open_action,
    actions.c.status == sa.literal_column(str(int(ActionStatus.AWAITING_APPROVAL))),
)
_blocks_of_bases = (
    sa.select(sa.func.count().label("blocks"))
    .select_from(knowledge_blocks)
    .group_by(knowledge_blocks.c.base)
    .subquery()
)
_MOST_BLOCKS = sa.select(sa.func.max(_blocks_of_bases.c.blocks))
_SECRET_KEYS = sa.select(secrets.c.key_id).distinct().order_by(secrets.c.key_id)
_COUNT_ARTIFACTS = sa.select(sa.func.count()).select_from(artifacts)
_SIZE = sa.select(sa.func.coalesce(sa.func.sum(blobs.c.size_bytes), 0))
_NEWEST_BLOBS = (
    sa.select(blobs.c.name, blobs.c.size_bytes)
    .join(artifacts, artifacts.c.blob_name == blobs.c.name)
    .group_by(blobs.c.name, blobs.c.size_bytes)
    .order_by(sa.func.max(artifacts.c.created_at).desc())
    .limit(sa.bindparam("most"))
)


def inspect_database(url: str) -> DatabaseReport:
    """Look at a database; see `stores.inspection`."""
    database = open_database(url, synchronous="FULL")
    return _read(database, lambda connection: _inspect(database, connection))


def _inspect(database: Database, connection: Connection) -> DatabaseReport:
    state = connection.inspect()
    # Asked once more: the first answer may have come after a long look at the files.
    before = time()
    now_there = connection.inspect().now if state.now is not None else None
    now_here = (before + time()) / 2
    ahead = None if now_there is None else now_there / _SECOND - now_here
    now = {"now": microseconds("clock", "now", datetime.now(UTC))}
    newest = connection.all(_NEWEST, {})[0][0]
    awaiting, oldest = connection.all(_AWAITING, {})[0]
    return DatabaseReport(
        engine=state.engine,
        vectors=state.vectors,
        without_vectors=state.without_vectors,
        most_passages=(connection.all(_MOST_BLOCKS, {})[0][0] or 0) * BLOCK_SIZE,
        faults=state.faults,
        clock_ahead_seconds=ahead,
        newest_ahead_seconds=max(0.0, (newest or 0) / _SECOND - time()),
        wal_bytes=_wal_bytes(database.engine.url),
        living_hosts=_firsts(connection.all(_LIVING_HOSTS, now)),
        lost_hosts=_firsts(connection.all(_LOST_HOSTS, now)),
        secret_key_ids=_firsts(connection.all(_SECRET_KEYS, {})),
        awaiting_actions=awaiting,
        oldest_awaiting_seconds=max(0.0, time() - oldest / _SECOND) if oldest else 0.0,
    )


def _wal_bytes(url: sa.URL) -> int | None:
    if not url.drivername.startswith("sqlite"):
        return None
    try:
        return Path(f"{url.database}-wal").stat().st_size
    except FileNotFoundError:
        return 0


async def inspect_blobs(url: str, *, blobs_url: str | None, most: int) -> BlobsReport:
    """Look at a blob store; see `stores.inspection`."""
    database = open_database(url, synchronous="FULL")
    count, size, rows = await asyncio.to_thread(_read, database, lambda c: _select_blobs(c, most))
    store = open_blob_store(blobs_url, database.engine.url)
    lost = []
    try:
        for name, size_bytes in rows if store is not None else ():
            found = await store.find(BlobName(name)) if store is not None else None
            if found is None or found.size_bytes != size_bytes:
                lost.append(name)
    finally:
        if store is not None:
            await store.close()
    return BlobsReport(artifacts=count, looked_at=len(rows), lost=tuple(lost), size_bytes=size)


def _select_blobs(connection: Connection, most: int) -> tuple[int, int, list[Row]]:
    count = connection.all(_COUNT_ARTIFACTS, {})[0][0]
    size = int(connection.all(_SIZE, {})[0][0])
    return count, size, connection.all(_NEWEST_BLOBS, {"most": most})


def _read(database: Database, look: Callable[[Connection], T]) -> T:
    connection = database.connect()
    with closing(connection):
        try:
            return look(connection)
        except Exception as error:
            raise database.meaning(error) from error


def _firsts(rows: list[Row]) -> tuple[str, ...]:
    return tuple(str(row[0]) for row in rows)
