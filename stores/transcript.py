"""The transcript: the conversation view, projected from events and results.

Items are written by the ledger, in the same transaction as the facts they come from
(`RunLedger.accept`, `record` and `finish`); this is the reading side.

Positions count 1, 2, 3 within a conversation, in the order of commits, and are never used again.
A reader that pages forward never misses an item that is stored later: it has a higher position
than all that could be read before.
"""

from __future__ import annotations

from typing import Protocol

from stores.records import Page, TranscriptItem


class Transcript(Protocol):
    """Reads the items of a conversation."""

    async def page(
        self,
        conversation_key: str,
        *,
        before: int | None = None,
        after: int | None = None,
        at_or_before: int | None = None,
        limit: int = 50,
        newest_first: bool = True,
    ) -> Page[TranscriptItem, int]:
        """Return a page of a conversation.

        A page is stable while items arrive: going on from `next_cursor`, nothing is seen twice
        and nothing that was there is left out. `next_cursor` goes in as `before` when reading
        newest first and as `after` when reading oldest first.

        Args:
            conversation_key: The conversation; an unknown one is an empty one.
            before: Only items with a smaller position.
            after: Only items with a greater position.
            at_or_before: Only items with this position or a smaller one.
            limit: How many items at most, from 1 to 10,000.
            newest_first: The order.
        """

    async def latest_position(self, conversation_key: str) -> int | None:
        """Return the newest position of a conversation; `None` while it has no items."""
