"""The transcript: the conversation view, projected from events and results.

Items are written by the ledger, in the same transaction as the facts they come from
(`RunLedger.accept`, `record` and `finish`); this is the reading side.

Positions count 1, 2, 3 within a conversation, in the order of commits, and are never used again.
A reader that pages forward never misses an item that is stored later: it has a higher position
than all that could be read before.
"""

from __future__ import annotations

from typing import Protocol

from stores.records import Page, PlacedContent, TranscriptItem


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

    async def contents(
        self,
        conversation_key: str,
        *,
        before: int | None = None,
        after: int | None = None,
        at_or_before: int | None = None,
        limit: int = 50,
        newest_first: bool = True,
        most_bytes: int | None = None,
    ) -> Page[PlacedContent, int]:
        """Return what `page` does, but of each item its content alone.

        Args:
            conversation_key: As for `page`, like all of them.
            before: Only items with a smaller position.
            after: Only items with a greater position.
            at_or_before: Only items with this position or a smaller one.
            limit: How many items at most.
            newest_first: The order.
            most_bytes: How many bytes the contents of a page may have. The page ends before the
                one that is too much, and little more than this is read; the first one is given in
                any case. `None` for no bound.
        """

    async def latest_position(self, conversation_key: str) -> int | None:
        """Return the newest position of a conversation; `None` while it has no items."""

    async def search(
        self, conversation_key: str, query: str, *, before: int | None = None, limit: int = 10
    ) -> Page[TranscriptItem, int]:
        """Return a page of the items of a conversation that a query finds, newest first.

        All words of the query must occur in an item's text, which is compared without case,
        width and accents; `stores.search_text` has the rules. An item is found from the commit on
        that stores it, until it is deleted. A page is stable while items arrive, as that of
        `page` is. It may have fewer items than asked for, even none, and a `next_cursor` all the
        same: a search goes only so far at a time through items that have the words' pieces but
        not the words.

        Args:
            conversation_key: The conversation; an unknown one is an empty one.
            query: Words between spaces; data, never syntax. Without any, nothing is found.
            before: Only items with a smaller position; `next_cursor` goes in here.
            limit: How many items at most, from 1 to 10,000.

        Raises:
            InvalidRecord: The query has more than 1,024 characters, U+0000 or a lone surrogate.
        """

    async def search_workspace(
        self, workspace: str, query: str, *, before: int | None = None, limit: int = 10
    ) -> Page[TranscriptItem, int]:
        """Return a page of the items of a workspace that a query finds, newest first.

        As `search`, over all conversations of the workspace, in the order of commits.

        Args:
            workspace: The workspace's id, or empty for what has none.
            query: As for `search`.
            before: The `next_cursor` of the page before, which is good for nothing else.
            limit: As for `search`.
        """
