"""State: small JSON values that the host keeps for runners, by scope key and key.

A scope key is opaque text that the host builds of ids. The two texts together are the key of a
row, compared by their bytes: no two different pairs share one, whatever characters they hold.

A value is JSON, kept as the text it came as. `stores.json_text` says which texts are refused, the
same on both engines: NaN and Infinity, two members of one name, nesting over 64, and U+0000, also
as an escape, are among them.

The key `conversation_id` is another name of `external.conversation_id`, in every scope and for
every method that takes a key. What is returned, listed or matched by a prefix has the longer name.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from stores.records import Page

PAGE_BYTES: Final = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StateEntry:
    """A value of state.

    Attributes:
        key: Its key.
        value: The JSON text, as it came.
        version: Counts the writes of this key, from 1.
        updated_at: When it was written.
    """

    key: str
    value: str
    version: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """What several scopes held at one moment.

    Attributes:
        entries: For each scope key that was asked for, its entries by key.
        truncated: Whether there was more than the bound allows.
    """

    entries: Mapping[str, Sequence[StateEntry]]
    truncated: bool


class State(Protocol):
    """Writes and reads state.

    Writes go through the journal: a future that is done means that it is durable, and a write
    that compares and one that sets do so in one transaction, for all hosts on the database.
    """

    def set(
        self,
        scope_key: str,
        key: str,
        value: str,
        *,
        expected_version: int | None = None,
        workspace: str = "",
    ) -> Future[StateEntry]:
        """Store a value, new or over the one that is there.

        Args:
            scope_key: The scope, up to 2,048 bytes.
            key: The key, 1 to 255 bytes.
            value: One JSON value.
            expected_version: The version it must have now, 0 for no value; `None` for any.
            workspace: The workspace whose retention it is under, or empty.

        Returns:
            The entry as it is stored. Its version is the one before plus 1. A key that was
            deleted goes on above the version that it had then: a version that was read once
            never comes to stand for another value. (Deletions are remembered for 30 days.)

        Raises:
            InvalidRecord: At once; the value is no JSON, or a text cannot be stored.
            ValueTooLarge: At once; the value has more bytes than the limit.
            VersionConflict: It has another version than expected.
        """

    def delete(
        self, scope_key: str, key: str, *, expected_version: int | None = None
    ) -> Future[bool]:
        """Delete a value; False if there is none.

        Raises:
            InvalidRecord: At once; a text cannot be stored.
            VersionConflict: It has another version than expected; without a value, 0.
        """

    async def get(self, scope_key: str, key: str) -> StateEntry | None:
        """Return a value, or `None`."""

    async def list(
        self,
        scope_key: str,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int = 50,
        most_bytes: int = PAGE_BYTES,
    ) -> Page[StateEntry, str]:
        """Return the values of a scope, by key (in the order of its bytes).

        Going on from `next_cursor`, a key is never seen twice, and one that stays there is never
        left out, whatever is written meanwhile.

        Args:
            scope_key: The scope; an unknown one is an empty one.
            prefix: Only keys that begin so; all its characters are themselves.
            after: Only keys behind this one: the `next_cursor` of the page before.
            limit: How many entries at most, from 1 to 10,000.
            most_bytes: How many bytes keys and values may have; one entry always fits.
        """

    async def snapshot(
        self, scope_keys: Sequence[str], *, most_bytes: int = PAGE_BYTES
    ) -> StateSnapshot:
        """Return all values of up to 8 scopes as of one moment.

        Args:
            scope_keys: The scopes, those first that matter most.
            most_bytes: How many bytes keys and values may have. Beyond it nothing more is taken,
                in the order of the scopes and, within one, of the keys.

        Raises:
            InvalidRecord: More than 8 scopes.
        """
