"""The tokens with which runners attach to hosts, stored by hash."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from stores.records import AttachTokenRecord


class AttachTokens(Protocol):
    """Writes and reads attach tokens. The tokens themselves are never seen here."""

    def create(self, token: AttachTokenRecord) -> Future[None]:
        """Store a new token.

        Raises:
            InvalidRecord: At once; a field cannot be stored.
            AlreadyExists: Its id or its hash is taken.
        """

    def revoke(self, token_id: str, at: datetime) -> Future[bool]:
        """Revoke a token; False if it is unknown or was revoked before, which keeps its time."""

    def mark_used(self, token_id: str, at: datetime) -> Future[None]:
        """Note that a token was used; an earlier time than the stored one changes nothing."""

    async def get(self, token_id: str) -> AttachTokenRecord | None:
        """Return a token by its id, or `None`."""

    async def find_by_hash(self, hash: bytes) -> AttachTokenRecord | None:
        """Return the token with this hash, expired and revoked ones as well, or `None`."""

    async def list(self) -> Sequence[AttachTokenRecord]:
        """Return all tokens, oldest first, then by id."""
