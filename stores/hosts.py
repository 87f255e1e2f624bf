"""The hosts that run on a database, and their leases.

A host is known by its id and, for each of its starts, by an incarnation. Runs carry both. A lease
that is not renewed in time makes the host's active runs free for others to end or to claim.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from stores.records import HostRecord


class Hosts(Protocol):
    """Registers hosts and renews their leases."""

    def register(self, host_id: str, incarnation: str, lease_until: datetime) -> Future[None]:
        """Make this incarnation the host's own, in place of any earlier one."""

    def renew(self, host_id: str, incarnation: str, lease_until: datetime) -> Future[bool]:
        """Extend the lease; False if another incarnation took the host or it was released."""

    def release(self, host_id: str, incarnation: str) -> Future[bool]:
        """Give the host up at a clean stop; False if it is not this incarnation's any more."""

    async def get(self, host_id: str) -> HostRecord | None:
        """Return a host, or `None`."""

    async def list(self) -> Sequence[HostRecord]:
        """Return all hosts by id, those with a lease that ran out as well."""
