"""Searching the transcript: candidates from the index, newest first, each compared with the query.

What flows where::

    query --> terms --> index (a statement of the dialect) --> candidates --> Query.matches --> page

- The index gives, newest first, the items that have all the terms. Some of them may not match: the
  words may not stand as the query has them, or two terms may share a number. So candidates are
  taken a batch at a time until there are enough that do.
- A statement looks through at most 1,048,576 item numbers, so that none runs long, whatever is
  asked. How long a search takes that finds little grows with the items it passes. The worst are
  terms that half of all items have each and none has both: a million items take some 20 ms on
  SQLite and some 100 ms on PostgreSQL, where a rare term among them takes some ms.
- A search that compared 2,000 candidates in vain gives what it has, with a cursor to go on from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql import ClauseElement

from stores.errors import InvalidRecord
from stores.records import Page, TranscriptItem
from stores.search_text import QUERY_CHARACTERS, Query
from stores.sql.connection import Row
from stores.sql.dialect import Dialect
from stores.sql.readers import Readers
from stores.sql.rows import item_record
from stores.sql.search_terms import query_terms, workspace_query_terms
from stores.sql.tables import transcript_items
from stores.sql.values import INTEGER_MAX, check_limit, check_text

# Item numbers that the first statement looks through, where most searches end, and each other one.
_NEWEST_WINDOW = 1 << 15
_WINDOW = 1 << 20
# Candidates compared at a time, after the first batch, and in one search.
_BATCH = 200
_MOST_CANDIDATES = 2_000
# A conversation of so many positions is looked through at once.
_FEW = 4_096

_number = transcript_items.c.number
_position = transcript_items.c.position


def _end_of_conversation(order: sa.ColumnElement[int], name: str) -> sa.Subquery:
    return (
        sa.select(_number, _position)
        .where(
            transcript_items.c.conversation_key == sa.bindparam("of_conversation"),
            _position < sa.bindparam("before"),
        )
        .order_by(order)
        .limit(1)
        .subquery(name)
    )


_newest = _end_of_conversation(_position.desc(), "newest")
_oldest = _end_of_conversation(_position.asc(), "oldest")
_CONVERSATION_RANGE = sa.select(
    _newest.c.number, _oldest.c.number, _newest.c.position - _oldest.c.position
).join_from(_newest, _oldest, sa.true())

_below: sa.BindParameter[int] = sa.bindparam("before")
_RANGE = sa.select(
    sa.select(sa.func.max(_number)).where(_number < _below).scalar_subquery(),
    sa.select(sa.func.min(_number)).where(_number < _below).scalar_subquery(),
)


class _Candidate(NamedTuple):
    number: int
    item: TranscriptItem


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """What is looked for, and where.

    Attributes:
        terms: The encoded terms that candidates have.
        matches: Whether an item is what is looked for.
        cursor: The cursor after which a page goes on, of the last candidate of the one before.
        newest: The highest item number to look at.
        oldest: The lowest one.
        few: Whether it is known that few items have one of the terms.
    """

    terms: str
    matches: Callable[[TranscriptItem], bool]
    cursor: Callable[[_Candidate], int]
    newest: int
    oldest: int
    few: bool = False


class SqlSearch:
    """Implements the searches of `stores.transcript.Transcript`."""

    def __init__(self, *, readers: Readers, dialect: Dialect) -> None:
        """Take the way to read, and the engine's way to search."""
        self._readers = readers
        self._dialect = dialect

    async def in_conversation(
        self, conversation_key: str, query: str, *, before: int | None, limit: int
    ) -> Page[TranscriptItem, int]:
        """Return a page of what a query finds in a conversation; see the protocol."""
        parsed = _parsed(query, limit)
        if not parsed.words:
            return Page((), None)
        values = {"of_conversation": conversation_key, "before": _bound(before)}
        row = await self._readers.first(_CONVERSATION_RANGE, values)
        if row is None:
            return Page((), None)
        newest, oldest, positions = row
        return await self._page(
            _Search(
                terms=query_terms(parsed, conversation_key=conversation_key),
                matches=lambda item: (
                    item.conversation_key == conversation_key and parsed.matches(item.text or "")
                ),
                cursor=lambda candidate: candidate.item.position,
                newest=newest,
                oldest=oldest,
                few=positions < _FEW,
            ),
            limit,
        )

    async def in_workspace(
        self, workspace: str, query: str, *, before: int | None, limit: int
    ) -> Page[TranscriptItem, int]:
        """Return a page of what a query finds in a workspace; see the protocol."""
        parsed = _parsed(query, limit)
        row = await self._readers.first(_RANGE, {"before": _bound(before)})
        if not parsed.words or row is None or row[0] is None:
            return Page((), None)
        return await self._page(
            _Search(
                terms=workspace_query_terms(parsed, workspace=workspace),
                matches=lambda item: (
                    item.workspace == workspace and parsed.matches(item.text or "")
                ),
                cursor=lambda candidate: candidate.number,
                newest=row[0],
                oldest=row[1],
            ),
            limit,
        )

    async def _page(self, search: _Search, limit: int) -> Page[TranscriptItem, int]:
        found: list[_Candidate] = []
        compared = 0
        below = search.newest + 1
        window = _NEWEST_WINDOW
        # One more tells whether there are more.
        most = limit + 1
        while below > search.oldest:
            lowest = max(search.oldest, below - window)
            statement = self._statement(search, window)
            values = {"terms": search.terms, "lowest": lowest, "below": below, "most": most}
            rows = await self._readers.all(statement, values)
            candidates = [_candidate(row) for row in rows]
            found += await asyncio.to_thread(_matching, search, candidates)
            if len(found) > limit:
                return _page(search, found[:limit], found[limit - 1])
            compared += len(candidates)
            if len(candidates) < most:
                below = lowest
                window = _WINDOW
            elif compared >= _MOST_CANDIDATES:
                return _page(search, found, candidates[-1])
            else:
                below = candidates[-1].number
                most = _BATCH
        return _page(search, found, None)

    def _statement(self, search: _Search, window: int) -> ClauseElement:
        if search.few:
            return self._dialect.search_few
        newest = window == _NEWEST_WINDOW
        return self._dialect.search_newest if newest else self._dialect.search


def _parsed(query: str, limit: int) -> Query:
    check_limit(limit)
    check_text("search", "query", query)
    if len(query) > QUERY_CHARACTERS:
        rule = f"must be at most {QUERY_CHARACTERS} characters, is {len(query)}"
        raise InvalidRecord("search", "query", rule)
    return Query.parse(query)


def _bound(before: int | None) -> int:
    return INTEGER_MAX if before is None else before


def _candidate(row: Row) -> _Candidate:
    return _Candidate(row[0], item_record(row[1:]))


def _matching(search: _Search, candidates: Sequence[_Candidate]) -> list[_Candidate]:
    return [candidate for candidate in candidates if search.matches(candidate.item)]


def _page(
    search: _Search, found: Sequence[_Candidate], last: _Candidate | None
) -> Page[TranscriptItem, int]:
    """Return a page of what was found, after which a following one goes on from `last`."""
    items = tuple(candidate.item for candidate in found)
    return Page(items, None if last is None else search.cursor(last))
