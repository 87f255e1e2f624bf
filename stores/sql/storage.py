"""Storage on SQL."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from datetime import datetime

import sqlalchemy as sa

from stores.errors import InvalidRecord, ValueTooLarge
from stores.records import Page
from stores.sql.connection import Connection, Row
from stores.sql.journal import SqlJournal
from stores.sql.key_ranges import key_range
from stores.sql.readers import Readers
from stores.sql.tables import storage_values
from stores.sql.values import check_ids, check_keys, check_limit, microseconds, time
from stores.storage import StorageEntry, StoredValue

_stored = storage_values.c
_of_owner = sa.and_(
    _stored.area == sa.bindparam("of_area"), _stored.owner == sa.bindparam("of_owner")
)
_is_key = sa.and_(_of_owner, _stored.key == sa.bindparam("of_key"))

_SELECT = sa.select(_stored.value, _stored.updated_at).where(_is_key)
_SELECT_CREATED = sa.select(_stored.created_at).where(_is_key)
_SELECT_PAGE = (
    sa.select(_stored.key, _stored.size_bytes, _stored.created_at, _stored.updated_at)
    .where(
        _of_owner,
        _stored.key >= sa.bindparam("from_key"),
        _stored.key != sa.bindparam("behind_key"),
        _stored.key < sa.bindparam("below_key"),
    )
    .order_by(_stored.key)
    .limit(sa.bindparam("most"))
)
_INSERT = sa.insert(storage_values)
_UPDATE = (
    sa.update(storage_values)
    .where(_is_key)
    .values({name: sa.bindparam(f"to_{name}") for name in ("size_bytes", "updated_at", "value")})
)
_DELETE = sa.delete(storage_values).where(_is_key)


class SqlStorage:
    """Implements `stores.storage.Storage`."""

    def __init__(
        self,
        *,
        journal: SqlJournal,
        readers: Readers,
        clock: Callable[[], datetime],
        most_bytes: int,
    ) -> None:
        """Take the ways to write and to read, what tells the time, and a value's limit."""
        self._journal = journal
        self._readers = readers
        self._clock = clock
        self._most_bytes = most_bytes

    def set(self, area: str, owner: str, key: str, value: bytes) -> Future[StorageEntry]:
        """Store a value; see the protocol."""
        place = _place(area, owner, key)
        if len(value) > self._most_bytes:
            raise ValueTooLarge("storage", "value", len(value), self._most_bytes)
        now = microseconds("storage", "now", self._clock())
        size = len(value)

        def work(connection: Connection) -> StorageEntry:
            stored = connection.first(_SELECT_CREATED, place)
            created = now if stored is None else stored[0]
            if stored is None:
                row = {"area": area, "owner": owner, "key": key, "created_at": now}
                connection.run(
                    _INSERT, {**row, "size_bytes": size, "updated_at": now, "value": value}
                )
            else:
                values = {"to_size_bytes": size, "to_updated_at": now, "to_value": value}
                connection.run(_UPDATE, {**place, **values})
            return StorageEntry(key, size, time(created), time(now))

        return self._journal.submit(work, size=size)

    def delete(self, area: str, owner: str, key: str) -> Future[bool]:
        """Delete a value; False if there is none."""
        place = _place(area, owner, key)
        return self._journal.submit(lambda connection: connection.run(_DELETE, place) == 1)

    async def get(self, area: str, owner: str, key: str) -> StoredValue | None:
        """Return a value, or `None`."""
        row = await self._readers.first(
            _SELECT, {"of_area": area, "of_owner": owner, "of_key": key}
        )
        return None if row is None else StoredValue(row[0], time(row[1]))

    async def list(
        self, area: str, owner: str, *, prefix: str = "", after: str | None = None, limit: int = 50
    ) -> Page[StorageEntry, str]:
        """Return what an owner has, by key; see the protocol."""
        check_limit(limit)
        values = {
            "of_area": area,
            "of_owner": owner,
            **key_range(prefix, after),
            # One more tells whether there are more.
            "most": limit + 1,
        }
        rows = await self._readers.all(_SELECT_PAGE, values)
        entries = tuple(_decode(row) for row in rows[:limit])
        return Page(entries, entries[-1].key if len(rows) > limit else None)


def _place(area: str, owner: str, key: str) -> dict[str, str]:
    check_ids("storage", area=area, key=key)
    check_keys("storage", owner=owner)
    if not key:
        raise InvalidRecord("storage", "key", "must not be empty")
    return {"of_area": area, "of_owner": owner, "of_key": key}


def _decode(row: Row) -> StorageEntry:
    return StorageEntry(row[0], row[1], time(row[2]), time(row[3]))
