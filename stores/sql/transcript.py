"""The transcript on SQL: pages for readers, and the writing that the ledger calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from stores.records import Page, TranscriptItem
from stores.sql.connection import Connection
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

_between = sa.select(*item_columns).where(
    transcript_items.c.conversation_key == sa.bindparam("of_conversation"),
    transcript_items.c.position > sa.bindparam("above"),
    transcript_items.c.position < sa.bindparam("below"),
)
_NEWEST_FIRST = _between.order_by(transcript_items.c.position.desc()).limit(sa.bindparam("most"))
_OLDEST_FIRST = _between.order_by(transcript_items.c.position).limit(sa.bindparam("most"))


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
        check_limit(limit)
        below = [INTEGER_MAX]
        if before is not None:
            below.append(before)
        if at_or_before is not None:
            below.append(at_or_before + 1)
        values = {
            "of_conversation": conversation_key,
            "above": 0 if after is None else after,
            "below": min(below),
            # One more tells whether there are more.
            "most": limit + 1,
        }
        statement = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
        rows = await self._readers.all(statement, values)
        items = tuple(item_record(row) for row in rows[:limit])
        return Page(items, items[-1].position if len(rows) > limit else None)

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
