"""Hosts and their leases on SQL."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from stores.records import HostRecord
from stores.sql.catalogue_rows import host_record, host_row
from stores.sql.connection import Connection
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from stores.sql.tables import hosts
from stores.sql.values import check_ids

_is_host = hosts.c.host_id == sa.bindparam("of_host")
_is_incarnation = _is_host & (hosts.c.incarnation == sa.bindparam("of_incarnation"))

_INSERT = sa.insert(hosts)
_SELECT = sa.select(hosts).where(_is_host)
_SELECT_ALL = sa.select(hosts).order_by(hosts.c.host_id)
_RENEW = sa.update(hosts).where(_is_incarnation).values(lease_until=sa.bindparam("until"))
_DELETE = sa.delete(hosts).where(_is_host)
_RELEASE = sa.delete(hosts).where(_is_incarnation)


class SqlHosts:
    """Implements `stores.hosts.Hosts`."""

    def __init__(self, *, journal: SqlJournal, readers: Readers) -> None:
        """Take the ways to write and to read."""
        self._journal = journal
        self._readers = readers

    def register(self, host_id: str, incarnation: str, lease_until: datetime) -> Future[None]:
        """Make this incarnation the host's own, in place of any earlier one."""
        row = host_row(HostRecord(host_id, incarnation, lease_until))

        def work(connection: Connection) -> None:
            connection.run(_DELETE, {"of_host": host_id})
            connection.run(_INSERT, row)

        return self._journal.submit(work)

    def renew(self, host_id: str, incarnation: str, lease_until: datetime) -> Future[bool]:
        """Extend the lease; False if another incarnation took the host or it was released."""
        row = host_row(HostRecord(host_id, incarnation, lease_until))
        values = {
            "of_host": host_id,
            "of_incarnation": incarnation,
            "until": row["lease_until"],
        }
        return self._journal.submit(lambda connection: connection.run(_RENEW, values) == 1)

    def release(self, host_id: str, incarnation: str) -> Future[bool]:
        """Give the host up at a clean stop; False if it is not this incarnation's any more."""
        check_ids("host", host_id=host_id, incarnation=incarnation)
        values = {"of_host": host_id, "of_incarnation": incarnation}
        return self._journal.submit(lambda connection: connection.run(_RELEASE, values) == 1)

    async def get(self, host_id: str) -> HostRecord | None:
        """Return a host, or `None`."""
        row = await self._readers.first(_SELECT, {"of_host": host_id})
        return None if row is None else host_record(row)

    async def list(self) -> Sequence[HostRecord]:
        """Return all hosts by id, those with a lease that ran out as well."""
        rows = await self._readers.all(_SELECT_ALL, {})
        return [host_record(row) for row in rows]
