"""The transcript on SQL: pages for readers, and the writing that the ledger calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from stores.records import Page, PlacedContent, TranscriptItem
from stores.sql.connection import Connection, Values
from stores.sql.readers import Readers
from stores.sql.rows import Encoded, item_record
from stores.sql.search import SqlSearch
from stores.sql.tables import conversations, item_columns, transcript_items
from stores.sql.values import INTEGER_MAX, check_limit

_terms = transcript_items.c.terms
_is_conversation = conversations.c.conversation_key == sa.bindparam("of_conversation")

_INSERT = (
    sa.insert(transcript_items)
    .inline()
    .values({column.name: sa.bindparam(column.name) for column in (*item_columns, _terms)})
)
_LATEST = sa.select(conversations.c.last_position).where(_is_conversation)
_ADVANCE = (
    sa.update(conversations)
    .where(_is_conversation)
    .values(last_position=conversations.c.last_position + sa.bindparam("count"))
    .returning(conversations.c.last_position)
)
_BEGIN = sa.insert(conversations)

_position, _content = transcript_items.c.position, transcript_items.c.content
_in_conversation = transcript_items.c.conversation_key == sa.bindparam("of_conversation")


def _pages(*columns: sa.ColumnElement[Any]) -> Mapping[bool, sa.Select[Any]]:
    """Return the statements that read pages, by whether newest come first."""
    between = sa.select(*columns).where(
        _in_conversation,
        _position > sa.bindparam("above"),
        _position < sa.bindparam("below"),
    )
    return {
        newest_first: between.order_by(order).limit(sa.bindparam("most"))
        for newest_first, order in ((True, _position.desc()), (False, _position.asc()))
    }


# Bytes. A content that has more is read alone, so that a page of many holds no more than it may.
_SMALL = 16_384

_ITEMS = _pages(*item_columns)
_CONTENTS = _pages(
    _position,
    sa.func.length(_content),
    sa.case((sa.func.length(_content) <= _SMALL, _content)),
)
_LARGE = sa.select(_content).where(_in_conversation, _position == sa.bindparam("at"))


class SqlTranscript:
    """Implements `stores.transcript.Transcript`."""

    def __init__(self, *, readers: Readers, search: SqlSearch) -> None:
        """Take the ways to read and to search."""
        self._readers = readers
        self._search = search

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
        """Return a page of a conversation; see the protocol."""
        values = _bounds(conversation_key, before, after, at_or_before, limit)
        rows = await self._readers.all(_ITEMS[newest_first], values)
        items = tuple(item_record(row) for row in rows[:limit])
        return Page(items, items[-1].position if len(rows) > limit else None)

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
        """Return a page of the contents of a conversation's items; see the protocol."""
        values = _bounds(conversation_key, before, after, at_or_before, limit)
        rows = await self._readers.all(_CONTENTS[newest_first], values)
        placed: list[PlacedContent] = []
        held = 0
        for position, size, content in rows[:limit]:
            held += size
            if placed and most_bytes is not None and held > most_bytes:
                return Page(tuple(placed), placed[-1].position)
            if content is None:
                content = await self._large(conversation_key, position)
            # An item that was deleted between the two is not there.
            if content is not None:
                placed.append(PlacedContent(position, content))
        return Page(tuple(placed), rows[limit - 1][0] if len(rows) > limit else None)

    async def _large(self, conversation_key: str, position: int) -> bytes | None:
        values = {"of_conversation": conversation_key, "at": position}
        row = await self._readers.first(_LARGE, values)
        return None if row is None else row[0]

    async def latest_position(self, conversation_key: str) -> int | None:
        """Return the newest position of a conversation; `None` while it has no items."""
        row = await self._readers.first(_LATEST, {"of_conversation": conversation_key})
        return None if row is None else row[0]

    async def search(
        self, conversation_key: str, query: str, *, before: int | None = None, limit: int = 10
    ) -> Page[TranscriptItem, int]:
        """Return a page of what a query finds in a conversation; see the protocol."""
        return await self._search.in_conversation(
            conversation_key, query, before=before, limit=limit
        )

    async def search_workspace(
        self, workspace: str, query: str, *, before: int | None = None, limit: int = 10
    ) -> Page[TranscriptItem, int]:
        """Return a page of what a query finds in a workspace; see the protocol."""
        return await self._search.in_workspace(workspace, query, before=before, limit=limit)


def _bounds(
    conversation_key: str,
    before: int | None,
    after: int | None,
    at_or_before: int | None,
    limit: int,
) -> Values:
    check_limit(limit)
    below = [INTEGER_MAX]
    if before is not None:
        below.append(before)
    if at_or_before is not None:
        below.append(at_or_before + 1)
    return {
        "of_conversation": conversation_key,
        "above": 0 if after is None else after,
        "below": min(below),
        # One more tells whether there are more.
        "most": limit + 1,
    }


def latest_position(connection: Connection, conversation_key: str) -> int | None:
    """Return the newest position of a conversation; `None` while it has no items."""
    row = connection.first(_LATEST, {"of_conversation": conversation_key})
    return None if row is None else row[0]


def write_item(connection: Connection, item: Encoded) -> int | None:
    """Write an encoded item at the next position; return the one before it, if there is one."""
    position = _take_positions(connection, item["conversation_key"], 1)
    _insert(connection, [{**item, "position": position}])
    return position - 1 or None


def write_items(connection: Connection, items: Sequence[Encoded]) -> None:
    """Write encoded items at the next positions of their conversations, in the order given."""
    counts = Counter(item["conversation_key"] for item in items)
    positions = {key: _take_positions(connection, key, count) for key, count in counts.items()}
    placed = []
    for item in items:
        key = item["conversation_key"]
        placed.append({**item, "position": positions[key]})
        positions[key] += 1
    _insert(connection, placed)


def _insert(connection: Connection, items: Sequence[Encoded]) -> None:
    connection.run_many(_INSERT, items)
    index_items(connection, items)


def index_items(connection: Connection, items: Iterable[Encoded]) -> None:
    """Let encoded items be found that were inserted in this transaction."""
    if connection.index_item is not None:
        found = [item for item in items if item["terms"] is not None]
        connection.run_many(connection.index_item, found)


def _take_positions(connection: Connection, conversation_key: str, count: int) -> int:
    """Take the next positions of a conversation and return the first of them."""
    row = connection.first(_ADVANCE, {"of_conversation": conversation_key, "count": count})
    if row is None:
        connection.run(_BEGIN, {"conversation_key": conversation_key, "last_position": count})
        return 1
    return int(row[0]) - count + 1
