"""Pages of the audit: a statement for each combination of what narrows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from stores.audit import AuditOutcome, AuditQuery, AuditRecord
from stores.errors import InvalidRecord
from stores.records import Page
from stores.sql.audit_rows import audit_record
from stores.sql.connection import Row, Values
from stores.sql.tables import audit, was_not_done
from stores.sql.values import (
    INTEGER_MAX,
    check_limit,
    microseconds,
    optional_microseconds,
    time,
)

_conditions: dict[str, sa.ColumnElement[bool]] = {
    "run_id": audit.c.run_id == sa.bindparam("run_id"),
    "outcome": audit.c.outcome == sa.bindparam("outcome"),
    "after": audit.c.at >= sa.bindparam("after"),
    "before": audit.c.at < sa.bindparam("before"),
    "below_position": sa.tuple_(audit.c.at, audit.c.position)
    < sa.tuple_(sa.bindparam("below_time"), sa.bindparam("below_position")),
}

Shape = tuple[frozenset[str], bool]


class AuditPages:
    """The statements that read pages of the audit."""

    def __init__(self) -> None:
        """Start without statements."""
        self._statements: dict[Shape, sa.Select[Any]] = {}

    def statement(
        self, query: AuditQuery, *, limit: int, after: str | None
    ) -> tuple[sa.Select[Any], Values]:
        """Return the statement that reads a page, and its values.

        Raises:
            InvalidRecord: The limit or the cursor is no such thing.
        """
        check_limit(limit)
        values = _values(query, after)
        not_done = query.outcome is not None and query.outcome is not AuditOutcome.DONE
        shape = (frozenset(values), not_done)
        found = self._statements.get(shape)
        if found is None:
            found = self._statements[shape] = _build(shape)
        # One more tells whether there are more.
        return found, {**values, "most": limit + 1}


def page_of_audit(rows: Sequence[Row], *, limit: int) -> Page[AuditRecord, str]:
    """Decode the rows that such a statement gave."""
    items = tuple(audit_record(row) for row in rows[:limit])
    return Page(items, _cursor(items[-1]) if len(rows) > limit else None)


def _build(shape: Shape) -> sa.Select[Any]:
    names, not_done = shape
    narrowed = [_conditions[name] for name in sorted(names & _conditions.keys())]
    # The partial index is used only where its condition stands in the query.
    if not_done:
        narrowed.append(was_not_done)
    return (
        sa.select(audit)
        .where(*narrowed)
        .order_by(audit.c.at.desc(), audit.c.position.desc())
        .limit(sa.bindparam("most"))
    )


def _values(query: AuditQuery, after: str | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "run_id": query.run_id,
        "outcome": None if query.outcome is None else int(query.outcome),
        "after": optional_microseconds("audit query", "after", query.after),
        "before": optional_microseconds("audit query", "before", query.before),
    }
    if after is not None:
        values["below_time"], values["below_position"] = _parse(after)
    return {name: value for name, value in values.items() if value is not None}


def _cursor(record: AuditRecord) -> str:
    return f"{microseconds('audit', 'at', record.at)}:{record.position}"


def _parse(cursor: str) -> tuple[int, int]:
    at, _, position = cursor.partition(":")
    try:
        numbers = int(at), int(position)
        time(numbers[0])
    except (ValueError, OverflowError) as error:
        raise InvalidRecord("audit page", "after", "must be a page's next_cursor") from error
    if not 0 <= numbers[1] <= INTEGER_MAX:
        raise InvalidRecord("audit page", "after", "must be a page's next_cursor")
    return numbers
