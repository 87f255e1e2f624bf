"""API keys on SQL."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from stores.errors import AlreadyExists
from stores.records import ApiKeyRecord
from stores.sql.catalogue_rows import key_record, key_row
from stores.sql.connection import Connection
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from stores.sql.rows import Encoded
from stores.sql.tables import api_keys
from stores.sql.values import check_ids, microseconds

_is_key = api_keys.c.key_id == sa.bindparam("of_key")

_INSERT = sa.insert(api_keys)
_KEPT = frozenset({"key_id", "created_at", "last_used_at"})
_UPDATE = (
    sa.update(api_keys)
    .where(_is_key)
    .values({c.name: sa.bindparam(f"to_{c.name}") for c in api_keys.c if c.name not in _KEPT})
)
_SELECT = sa.select(api_keys).where(_is_key)
_SELECT_BY_HASH = sa.select(api_keys).where(api_keys.c.hash == sa.bindparam("of_hash"))
_SELECT_ALL = sa.select(api_keys).order_by(api_keys.c.created_at, api_keys.c.key_id)
_REVOKE = (
    sa.update(api_keys)
    .where(_is_key, api_keys.c.revoked_at.is_(None))
    .values(revoked_at=sa.bindparam("at"))
)
_MARK_USED = (
    sa.update(api_keys)
    .where(
        _is_key,
        sa.func.coalesce(api_keys.c.last_used_at, api_keys.c.created_at) < sa.bindparam("at"),
    )
    .values(last_used_at=sa.bindparam("at"))
)


class SqlApiKeys:
    """Implements `stores.keys.ApiKeys`."""

    def __init__(self, *, journal: SqlJournal, readers: Readers) -> None:
        """Take the ways to write and to read."""
        self._journal = journal
        self._readers = readers

    def create(self, key: ApiKeyRecord) -> Future[None]:
        """Store a new key; see the protocol."""
        row = key_row(key)

        def work(connection: Connection) -> None:
            if connection.first(_SELECT, {"of_key": key.key_id}) is not None:
                raise AlreadyExists("API key", "key_id")
            if connection.first(_SELECT_BY_HASH, {"of_hash": key.hash}) is not None:
                raise AlreadyExists("API key", "hash")
            connection.run(_INSERT, row)

        return self._journal.submit(work)

    def revoke(self, key_id: str, at: datetime) -> Future[bool]:
        """Revoke a key; False if it is unknown or was revoked before, which keeps its time."""
        check_ids("API key", key_id=key_id)
        values = {"of_key": key_id, "at": microseconds("API key", "revoked_at", at)}
        return self._journal.submit(lambda connection: connection.run(_REVOKE, values) == 1)

    def mark_used(self, key_id: str, at: datetime) -> Future[None]:
        """Note that a key was used; an earlier time than the stored one changes nothing."""
        check_ids("API key", key_id=key_id)
        values = {"of_key": key_id, "at": microseconds("API key", "last_used_at", at)}

        def work(connection: Connection) -> None:
            connection.run(_MARK_USED, values)

        return self._journal.submit(work)

    async def get(self, key_id: str) -> ApiKeyRecord | None:
        """Return a key by its id, or `None`."""
        row = await self._readers.first(_SELECT, {"of_key": key_id})
        return None if row is None else key_record(row)

    async def find_by_hash(self, hash: bytes) -> ApiKeyRecord | None:
        """Return the key with this hash, expired and revoked ones as well, or `None`."""
        row = await self._readers.first(_SELECT_BY_HASH, {"of_hash": hash})
        return None if row is None else key_record(row)

    async def list(self) -> Sequence[ApiKeyRecord]:
        """Return all keys, oldest first, then by id."""
        rows = await self._readers.all(_SELECT_ALL, {})
        return [key_record(row) for row in rows]


def check_keys(connection: Connection, rows: Sequence[Encoded]) -> None:
    """Refuse keys whose hash another key has.

    Raises:
        AlreadyExists: One of them.
    """
    hashes = [row["hash"] for row in rows]
    if len(set(hashes)) < len(hashes):
        raise AlreadyExists("API key", "hash")
    for row in rows:
        other = connection.first(_SELECT_BY_HASH, {"of_hash": row["hash"]})
        if other is not None and key_record(other).key_id != row["key_id"]:
            raise AlreadyExists("API key", "hash")


def put_key(connection: Connection, row: Encoded) -> None:
    """Store a checked key within a transaction: a new one, or in place of the one with its id."""
    changes = {f"to_{name}": value for name, value in row.items() if name not in _KEPT}
    if connection.run(_UPDATE, {"of_key": row["key_id"], **changes}) == 0:
        connection.run(_INSERT, row)
