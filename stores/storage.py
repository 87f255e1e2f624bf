"""Storage: larger private values, bytes by area, owner and key.

The owner is part of the key, so that an area of plugins is private to each plugin: the host gives
the plugin's id, the workspace's, or a key of its own making, and no owner can name another's
values. All three texts are compared by their bytes.
"""

from __future__ import annotations

from asyncio import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from stores.records import Page


@dataclass(frozen=True, slots=True)
class StorageEntry:
    """A value of storage, without the value.

    Attributes:
        key: Its key.
        size_bytes: How many bytes it has.
        created_at: When the key was first stored.
        updated_at: When its value was stored.
    """

    key: str
    size_bytes: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value of storage.

    Attributes:
        value: The bytes; they may be none.
        updated_at: When it was stored.
    """

    value: bytes
    updated_at: datetime


class Storage(Protocol):
    """Writes and reads values of storage. Writes go through the journal."""

    def set(self, area: str, owner: str, key: str, value: bytes) -> Future[StorageEntry]:
        """Store a value, new or in place of the one that is there.

        Args:
            area: The area, such as `plugin`; up to 255 bytes.
            owner: Whose value it is within the area; up to 2,048 bytes.
            key: The key, 1 to 255 bytes of any text.
            value: The bytes; they may be none.

        Raises:
            InvalidRecord: At once; a text cannot be stored.
            ValueTooLarge: At once; the value has more bytes than the limit.
        """

    def delete(self, area: str, owner: str, key: str) -> Future[bool]:
        """Delete a value; False if there is none."""

    async def get(self, area: str, owner: str, key: str) -> StoredValue | None:
        """Return a value, or `None`."""

    async def list(
        self, area: str, owner: str, *, prefix: str = "", after: str | None = None, limit: int = 50
    ) -> Page[StorageEntry, str]:
        """Return what an owner has, by key (in the order of its bytes), without the values.

        Going on from `next_cursor`, a key is never seen twice, and one that stays there is never
        left out, whatever is written meanwhile.

        Args:
            area: The area.
            owner: The owner; an unknown one has nothing.
            prefix: Only keys that begin so; all its characters are themselves.
            after: Only keys behind this one: the `next_cursor` of the page before.
            limit: How many entries at most, from 1 to 10,000.
        """
