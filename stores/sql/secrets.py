"""Secrets on SQL."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from stores.errors import InvalidRecord, SecretUnreadable, ValueTooLarge
from stores.secret_keys import SecretKeys
from stores.secrets import Reencrypted, Secret, SecretChange, SecretOwner
from stores.sql.catalogue_revision import grow_revision
from stores.sql.connection import Connection, Row
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from stores.sql.tables import secrets
from stores.sql.values import check_ids, check_limit, check_text, microseconds

_of_owner = sa.and_(
    secrets.c.owner_kind == sa.bindparam("of_kind"), secrets.c.owner_id == sa.bindparam("of_id")
)
_is_one = sa.and_(_of_owner, secrets.c.name == sa.bindparam("of_name"))
_place_columns = (secrets.c.owner_kind, secrets.c.owner_id, secrets.c.name)

_SELECT = sa.select(secrets.c.key_id, secrets.c.sealed).where(_is_one)
_SELECT_NAMES = sa.select(secrets.c.name).where(_of_owner).order_by(secrets.c.name)
_SELECT_KEYS = sa.select(secrets.c.key_id).distinct().order_by(secrets.c.key_id)
_INSERT = sa.insert(secrets)
_UPDATE = (
    sa.update(secrets)
    .where(_is_one)
    .values({name: sa.bindparam(f"to_{name}") for name in ("key_id", "updated_at", "sealed")})
)
_DELETE = sa.delete(secrets).where(_is_one)
_SELECT_OLDER = (
    sa.select(*_place_columns, secrets.c.key_id, secrets.c.sealed)
    .where(
        secrets.c.key_id != sa.bindparam("newest"),
        sa.tuple_(*_place_columns)
        > sa.tuple_(*(sa.bindparam(f"after_{number}") for number in range(3))),
    )
    .order_by(*_place_columns)
    .limit(sa.bindparam("most"))
)
# A secret that was written since it was read is another, and encrypted with the newest key.
_RESEAL = (
    sa.update(secrets)
    .where(_is_one, secrets.c.sealed == sa.bindparam("of_sealed"))
    .values({name: sa.bindparam(f"to_{name}") for name in ("key_id", "sealed")})
)


class SqlSecrets:
    """Implements `stores.secrets.Secrets`."""

    def __init__(
        self,
        *,
        journal: SqlJournal,
        readers: Readers,
        clock: Callable[[], datetime],
        keys: SecretKeys,
        most_bytes: int,
    ) -> None:
        """Take the ways to write and to read, what tells the time, the keys, and the limit."""
        self._journal = journal
        self._readers = readers
        self._clock = clock
        self._keys = keys
        self._most_bytes = most_bytes

    def put(self, owner: SecretOwner, name: str, secret: Secret | str) -> Future[None]:
        """Store a secret; see the protocol."""
        place, values = _place(owner, name), self._sealed(owner, name, secret)

        def work(connection: Connection) -> None:
            _put(connection, place, values)
            grow_revision(connection)

        return self._journal.submit(work, size=len(values["sealed"]))

    def changing(self, changes: Sequence[SecretChange]) -> Callable[[Connection], bool]:
        """Return what stores and deletes secrets within a transaction, and tells if any changed.

        What cannot be stored is told at once, as `put` does.
        """
        prepared = [
            (
                _place(each.owner, each.name),
                None if each.secret is None else self._sealed(each.owner, each.name, each.secret),
            )
            for each in changes
        ]

        def work(connection: Connection) -> bool:
            changed = False
            for place, values in prepared:
                if values is not None:
                    _put(connection, place, values)
                    changed = True
                elif connection.run(_DELETE, place):
                    changed = True
            return changed

        return work

    def delete(self, owner: SecretOwner, name: str) -> Future[bool]:
        """Delete a secret; False if it is not stored."""
        place = _place(owner, name)

        def work(connection: Connection) -> bool:
            deleted = connection.run(_DELETE, place) == 1
            if deleted:
                grow_revision(connection)
            return deleted

        return self._journal.submit(work)

    async def get(self, owner: SecretOwner, name: str) -> Secret | None:
        """Return a secret, or `None`; see the protocol."""
        values = {"of_kind": str(owner.kind), "of_id": owner.id, "of_name": name}
        row = await self._readers.first(_SELECT, values)
        return None if row is None else self._unseal(owner, name, *row)

    async def names(self, owner: SecretOwner) -> Sequence[str]:
        """Return the names of an owner's secrets, in order."""
        values = {"of_kind": str(owner.kind), "of_id": owner.id}
        return [row[0] for row in await self._readers.all(_SELECT_NAMES, values)]

    async def missing_keys(self) -> Sequence[str]:
        """Return the ids of keys that secrets are encrypted with and that are not there."""
        rows = await self._readers.all(_SELECT_KEYS, {})
        return [row[0] for row in rows if self._keys.find(row[0]) is None]

    async def reencrypt(self, *, batch: int = 100) -> Reencrypted:
        """Encrypt with the newest key what is encrypted with an older one; see the protocol."""
        check_limit(batch)
        changed = 0
        unreadable: list[tuple[SecretOwner, str]] = []
        after: Row = ("", "", "")
        while True:
            values: dict[str, Any] = {f"after_{n}": part for n, part in enumerate(after)}
            values |= {"newest": self._keys.newest.id, "most": batch}
            rows = await self._readers.all(_SELECT_OLDER, values)
            if not rows:
                return Reencrypted(changed, tuple(unreadable))
            after = rows[-1][:3]
            changes = [change for row in rows if (change := self._reseal(row, unreadable))]
            await self._journal.room()
            changed += await self._journal.submit(partial(_reseal, changes=changes))

    def _reseal(self, row: Row, unreadable: list[tuple[SecretOwner, str]]) -> dict[str, Any] | None:
        *place, name, key_id, sealed = row
        owner = SecretOwner(*place)
        try:
            secret = self._unseal(owner, name, key_id, sealed)
        except SecretUnreadable:
            unreadable.append((owner, name))
            return None
        return {
            **_place(owner, name),
            "of_sealed": sealed,
            "to_key_id": self._keys.newest.id,
            "to_sealed": self._seal(owner, name, secret),
        }

    def _sealed(self, owner: SecretOwner, name: str, secret: Secret | str) -> dict[str, Any]:
        return {
            "key_id": self._keys.newest.id,
            "updated_at": microseconds("secret", "now", self._clock()),
            "sealed": self._seal(owner, name, secret),
        }

    def _seal(self, owner: SecretOwner, name: str, secret: Secret | str) -> bytes:
        # The library takes long to import; who has no secrets does not pay it.
        from stores.sql.sealing import seal

        text = secret.reveal() if isinstance(secret, Secret) else secret
        check_text("secret", "secret", text.replace("\0", ""))
        size = len(text.encode())
        if size > self._most_bytes:
            raise ValueTooLarge("secret", "secret", size, self._most_bytes)
        return seal(self._keys.newest, owner, name, text)

    def _unseal(self, owner: SecretOwner, name: str, key_id: str, sealed: bytes) -> Secret:
        from stores.sql.sealing import unseal

        return unseal(self._keys, key_id, owner, name, bytes(sealed))


def _put(connection: Connection, place: Mapping[str, str], values: Mapping[str, Any]) -> None:
    changes = {f"to_{field}": value for field, value in values.items()}
    if connection.run(_UPDATE, {**place, **changes}) == 0:
        row = {
            "owner_kind": place["of_kind"],
            "owner_id": place["of_id"],
            "name": place["of_name"],
        }
        connection.run(_INSERT, {**row, **values})


def _reseal(connection: Connection, *, changes: Sequence[dict[str, Any]]) -> int:
    return sum(connection.run(_RESEAL, change) for change in changes)


def _place(owner: SecretOwner, name: str) -> dict[str, str]:
    check_ids("secret", owner_kind=owner.kind, owner_id=owner.id, name=name)
    for field, value in (("owner_kind", owner.kind), ("owner_id", owner.id), ("name", name)):
        if not value:
            raise InvalidRecord("secret", field, "must not be empty")
    return {"of_kind": str(owner.kind), "of_id": owner.id, "of_name": name}
