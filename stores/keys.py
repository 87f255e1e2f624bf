"""The API keys that callers authenticate with, stored by hash."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from stores.records import ApiKeyRecord


class ApiKeys(Protocol):
    """Writes and reads API keys. The keys themselves are never seen here."""

    def create(self, key: ApiKeyRecord) -> Future[None]:
        """Store a new key.

        Raises:
            InvalidRecord: At once; a field cannot be stored.
            AlreadyExists: Its id or its hash is taken.
        """

    def revoke(self, key_id: str, at: datetime) -> Future[bool]:
        """Revoke a key; False if it is unknown or was revoked before, which keeps its time."""

    def mark_used(self, key_id: str, at: datetime) -> Future[None]:
        """Note that a key was used; an earlier time than the stored one changes nothing."""

    async def get(self, key_id: str) -> ApiKeyRecord | None:
        """Return a key by its id, or `None`."""

    async def find_by_hash(self, hash: bytes) -> ApiKeyRecord | None:
        """Return the key with this hash, expired and revoked ones as well, or `None`."""

    async def list(self) -> Sequence[ApiKeyRecord]:
        """Return all keys, oldest first, then by id."""
