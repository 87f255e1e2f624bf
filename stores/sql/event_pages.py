"""Pages of a conversation's events: a statement for each order and number of types."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from stores.errors import InvalidRecord
from stores.records import EventRecord, Page
from stores.sql.connection import Row, Values
from stores.sql.rows import event_record
from stores.sql.tables import events, has_conversation
from stores.sql.values import INTEGER_MAX, check_limit

_MOST_TYPES = 1_000
# What an envelope has around it in a page: at most a tag and a length.
_AROUND_BYTES = 8

_columns = [column for column in events.c if column is not events.c.position]


class EventPages:
    """The statements that read pages of events."""

    def __init__(self) -> None:
        """Start without statements."""
        self._statements: dict[tuple[bool, int], sa.Select[Any]] = {}

    def statement(
        self,
        conversation_key: str,
        *,
        types: Collection[str],
        after: int | None,
        before: int | None,
        limit: int,
        newest_first: bool,
        most_bytes: int | None,
    ) -> tuple[sa.Select[Any], Values]:
        """Return the statement that reads a page, and its values.

        Raises:
            InvalidRecord: Too many types, or a limit that is none.
        """
        check_limit(limit)
        wanted = sorted(set(types))
        if len(wanted) > _MOST_TYPES:
            rule = f"must be at most {_MOST_TYPES}, are {len(wanted)}"
            raise InvalidRecord("event page", "types", rule)
        values = {
            "of_conversation": conversation_key,
            "above": 0 if after is None else after,
            "below": INTEGER_MAX if before is None else before,
            # One more tells whether there are more.
            "most": limit + 1,
            "bytes": INTEGER_MAX if most_bytes is None else most_bytes,
        }
        count = _statement_size(len(wanted))
        # One type twice is one type.
        for number in range(count):
            values[f"type_{number}"] = wanted[min(number, len(wanted) - 1)]
        return self._of_shape(newest_first, count), values

    def _of_shape(self, newest_first: bool, count: int) -> sa.Select[Any]:
        shape = (newest_first, count)
        found = self._statements.get(shape)
        if found is None:
            found = self._statements[shape] = _build(newest_first=newest_first, count=count)
        return found


def page_of_events(rows: Sequence[Row], *, limit: int) -> Page[EventRecord, int]:
    """Decode the rows that such a statement gave."""
    shown = rows[:limit]
    if not shown:
        return Page((), None)
    *_, position, found = shown[-1]
    return Page(tuple(map(event_record, shown)), position if found > len(shown) else None)


def _statement_size(types: int) -> int:
    """Return how many types a statement has room for: a power of two, so that there are few."""
    return 1 << (types - 1).bit_length() if types else 0


def _build(*, newest_first: bool, count: int) -> sa.Select[Any]:
    """Build a statement: sizes first, and then the envelopes of those that have room."""
    conditions = [
        has_conversation,
        events.c.conversation_key == sa.bindparam("of_conversation"),
        events.c.position > sa.bindparam("above"),
        events.c.position < sa.bindparam("below"),
    ]
    if count:
        wanted: list[sa.BindParameter[str]] = [
            sa.bindparam(f"type_{number}") for number in range(count)
        ]
        conditions.append(events.c.type.in_(wanted))
    candidates = (
        sa.select(
            events.c.position,
            (sa.func.length(events.c.envelope) + _AROUND_BYTES).label("size"),
        )
        .where(*conditions)
        .order_by(_ordered(events.c.position, newest_first))
        .limit(sa.bindparam("most"))
        .subquery("candidates")
    )
    through = sa.func.sum(candidates.c.size).over(
        order_by=_ordered(candidates.c.position, newest_first)
    )
    sized = sa.select(
        candidates.c.position,
        candidates.c.size,
        through.label("through"),
        sa.func.count().over().label("found"),
    ).subquery("sized")
    return (
        sa.select(*_columns, sized.c.position, sized.c.found)
        .join_from(sized, events, events.c.position == sized.c.position)
        .where(
            sa.or_(
                sized.c.through <= sa.bindparam("bytes", type_=sa.BigInteger),
                # The first one.
                sized.c.through == sized.c.size,
            )
        )
        .order_by(_ordered(sized.c.position, newest_first))
    )


def _ordered(column: sa.ColumnElement[int], newest_first: bool) -> sa.ColumnElement[int]:
    return column.desc() if newest_first else column.asc()
