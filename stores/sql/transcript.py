"""The transcript on SQL: pages for readers, and the writing that the ledger calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from stores.records import Page, TranscriptItem
from stores.sql.connection import Connection, Row
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

_text, _content, _position = (
    transcript_items.c.text,
    transcript_items.c.content,
    transcript_items.c.position,
)


def _pages(*columns: sa.ColumnElement[Any]) -> Mapping[bool, sa.Select[Any]]:
    """Return the statements that read pages, by whether newest come first."""
    between = sa.select(*columns).where(
        transcript_items.c.conversation_key == sa.bindparam("of_conversation"),
        _position > sa.bindparam("above"),
        _position < sa.bindparam("below"),
    )
    return {
        newest_first: between.order_by(order).limit(sa.bindparam("most"))
        for newest_first, order in ((True, _position.desc()), (False, _position.asc()))
    }


# What is larger is read alone, so that a page of many holds no more than it may.
_SMALL = 16_384


def _if_small(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    return sa.case((sa.func.length(column) <= _SMALL, column)).label(column.name)


_WHOLE = _pages(*item_columns)
_BOUNDED = _pages(
    *(_if_small(column) if column in (_text, _content) else column for column in item_columns),
    sa.func.coalesce(sa.func.length(_text), 0),
    sa.func.length(_content),
)
_ONE = sa.select(
    *(
        sa.func.substr(_text, 1, sa.bindparam("characters", type_=sa.Integer))
        if column is _text
        else column
        for column in item_columns
    )
).where(
    transcript_items.c.conversation_key == sa.bindparam("of_conversation"),
    _position == sa.bindparam("at"),
)
_OF = item_columns.index(transcript_items.c.conversation_key)
_AT = item_columns.index(_position)
# More than any text has, and a number that both engines take.
_ALL_CHARACTERS = 2**31 - 1


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
        text_characters: int | None = None,
        most_bytes: int | None = None,
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
        if text_characters is not None or most_bytes is not None:
            rows = await self._readers.all(_BOUNDED[newest_first], values)
            return await self._bounded_page(
                rows,
                limit=limit,
                characters=text_characters or _ALL_CHARACTERS,
                most_bytes=INTEGER_MAX if most_bytes is None else most_bytes,
            )
        rows = await self._readers.all(_WHOLE[newest_first], values)
        items = tuple(item_record(row) for row in rows[:limit])
        return Page(items, items[-1].position if len(rows) > limit else None)

    async def _bounded_page(
        self, rows: Sequence[Row], *, limit: int, characters: int, most_bytes: int
    ) -> Page[TranscriptItem, int]:
        items: list[TranscriptItem] = []
        held = 0
        # What is too large was not read with the rest. Where it was deleted since, it is left out.
        for row in rows[:limit]:
            length, size = row[-2:]
            held += min(length, characters) + size
            if items and held > most_bytes:
                return Page(tuple(items), items[-1].position)
            if length <= min(_SMALL, characters) and size <= _SMALL:
                items.append(item_record(row))
            elif (item := await self._one(row, characters)) is not None:
                items.append(item)
        return Page(tuple(items), rows[limit - 1][_AT] if len(rows) > limit else None)

    async def _one(self, row: Row, characters: int) -> TranscriptItem | None:
        values = {"of_conversation": row[_OF], "at": row[_AT], "characters": characters}
        found = await self._readers.first(_ONE, values)
        return None if found is None else item_record(found)

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
