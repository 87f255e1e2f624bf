"""Attach tokens on SQL."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from stores.errors import AlreadyExists
from stores.records import AttachTokenRecord
from stores.sql.connection import Connection, Row
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from stores.sql.rows import Encoded
from stores.sql.tables import attach_tokens
from stores.sql.values import check_ids, microseconds, optional_microseconds, optional_time, time

_KIND = "attach token"
_is_token = attach_tokens.c.token_id == sa.bindparam("of_token")

_INSERT = sa.insert(attach_tokens)
_SELECT = sa.select(attach_tokens).where(_is_token)
_SELECT_BY_HASH = sa.select(attach_tokens).where(attach_tokens.c.hash == sa.bindparam("of_hash"))
_SELECT_ALL = sa.select(attach_tokens).order_by(
    attach_tokens.c.created_at, attach_tokens.c.token_id
)
_REVOKE = (
    sa.update(attach_tokens)
    .where(_is_token, attach_tokens.c.revoked_at.is_(None))
    .values(revoked_at=sa.bindparam("at"))
)
_MARK_USED = (
    sa.update(attach_tokens)
    .where(
        _is_token,
        sa.func.coalesce(attach_tokens.c.last_used_at, attach_tokens.c.created_at)
        < sa.bindparam("at"),
    )
    .values(last_used_at=sa.bindparam("at"))
)


class SqlAttachTokens:
    """Implements `stores.attach_tokens.AttachTokens`."""

    def __init__(self, *, journal: SqlJournal, readers: Readers) -> None:
        """Take the ways to write and to read."""
        self._journal = journal
        self._readers = readers

    def create(self, token: AttachTokenRecord) -> Future[None]:
        """Store a new token; see the protocol."""
        row = _row(token)

        def work(connection: Connection) -> None:
            if connection.first(_SELECT, {"of_token": token.token_id}) is not None:
                raise AlreadyExists(_KIND, "token_id")
            if connection.first(_SELECT_BY_HASH, {"of_hash": token.hash}) is not None:
                raise AlreadyExists(_KIND, "hash")
            connection.run(_INSERT, row)

        return self._journal.submit(work)

    def revoke(self, token_id: str, at: datetime) -> Future[bool]:
        """Revoke a token; False if it is unknown or was revoked before, which keeps its time."""
        check_ids(_KIND, token_id=token_id)
        values = {"of_token": token_id, "at": microseconds(_KIND, "revoked_at", at)}
        return self._journal.submit(lambda connection: connection.run(_REVOKE, values) == 1)

    def mark_used(self, token_id: str, at: datetime) -> Future[None]:
        """Note that a token was used; an earlier time than the stored one changes nothing."""
        check_ids(_KIND, token_id=token_id)
        values = {"of_token": token_id, "at": microseconds(_KIND, "last_used_at", at)}

        def work(connection: Connection) -> None:
            connection.run(_MARK_USED, values)

        return self._journal.submit(work)

    async def get(self, token_id: str) -> AttachTokenRecord | None:
        """Return a token by its id, or `None`."""
        row = await self._readers.first(_SELECT, {"of_token": token_id})
        return None if row is None else _record(row)

    async def find_by_hash(self, hash: bytes) -> AttachTokenRecord | None:
        """Return the token with this hash, expired and revoked ones as well, or `None`."""
        row = await self._readers.first(_SELECT_BY_HASH, {"of_hash": hash})
        return None if row is None else _record(row)

    async def list(self) -> Sequence[AttachTokenRecord]:
        """Return all tokens, oldest first, then by id."""
        rows = await self._readers.all(_SELECT_ALL, {})
        return [_record(row) for row in rows]


def _row(token: AttachTokenRecord) -> Encoded:
    check_ids(_KIND, token_id=token.token_id, plugin_id=token.plugin_id)
    return {
        "token_id": token.token_id,
        "plugin_id": token.plugin_id,
        "hash": token.hash,
        "created_at": microseconds(_KIND, "created_at", token.created_at),
        "expires_at": microseconds(_KIND, "expires_at", token.expires_at),
        "revoked_at": optional_microseconds(_KIND, "revoked_at", token.revoked_at),
        "last_used_at": optional_microseconds(_KIND, "last_used_at", token.last_used_at),
    }


def _record(row: Row) -> AttachTokenRecord:
    return AttachTokenRecord(
        token_id=row[0],
        plugin_id=row[1],
        hash=row[2],
        created_at=time(row[3]),
        expires_at=time(row[4]),
        revoked_at=optional_time(row[5]),
        last_used_at=optional_time(row[6]),
    )
