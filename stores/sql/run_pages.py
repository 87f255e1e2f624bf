"""Pages of runs: a statement for each combination of what narrows them, made when first used."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from stores.errors import InvalidRecord
from stores.records import Page, RunQuery, RunRecord, RunStatus
from stores.sql.connection import Row, Values
from stores.sql.rows import run_record
from stores.sql.runs import select_runs
from stores.sql.tables import ended_badly, is_active, runs
from stores.sql.values import check_limit, microseconds, optional_microseconds, time

_conditions: dict[str, sa.ColumnElement[bool]] = {
    "workspace": runs.c.workspace == sa.bindparam("workspace"),
    "bot": runs.c.bot == sa.bindparam("bot"),
    "agent_id": runs.c.agent_id == sa.bindparam("agent_id"),
    "conversation_key": runs.c.conversation_key == sa.bindparam("conversation_key"),
    "replay_of": runs.c.replay_of == sa.bindparam("replay_of"),
    "created_after": runs.c.created_at >= sa.bindparam("created_after"),
    "created_before": runs.c.created_at < sa.bindparam("created_before"),
    "after": sa.tuple_(runs.c.created_at, runs.c.run_id)
    < sa.tuple_(sa.bindparam("after_time"), sa.bindparam("after_run")),
}

Shape = tuple[frozenset[str], frozenset[RunStatus]]


class RunPages:
    """The statements that read pages of runs."""

    def __init__(self) -> None:
        """Start without statements."""
        self._statements: dict[Shape, sa.Select[Any]] = {}

    def statement(
        self, query: RunQuery, *, limit: int, after: str | None
    ) -> tuple[sa.Select[Any], Values]:
        """Return the statement that reads a page, and its values.

        Raises:
            InvalidRecord: The limit or the cursor is no such thing.
        """
        check_limit(limit)
        values = _values(query, after)
        statement = self._of_shape((frozenset(values), frozenset(query.statuses)))
        # One more tells whether there are more.
        return statement, {**values, "most": limit + 1}

    def _of_shape(self, shape: Shape) -> sa.Select[Any]:
        found = self._statements.get(shape)
        if found is None:
            found = self._statements[shape] = _build(shape)
        return found


def page_of_runs(rows: Sequence[Row], *, limit: int) -> Page[RunRecord, str]:
    """Decode the rows that such a statement gave."""
    items = tuple(run_record(row) for row in rows[:limit])
    return Page(items, _cursor(items[-1]) if len(rows) > limit else None)


def _build(shape: Shape) -> sa.Select[Any]:
    names, statuses = shape
    narrowed = [_conditions[name] for name in sorted(names & _conditions.keys())]
    if "after_time" in names:
        narrowed.append(_conditions["after"])
    if statuses:
        narrowed += _has_status(statuses)
    return (
        select_runs.where(*narrowed)
        .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
        .limit(sa.bindparam("most"))
    )


def _has_status(statuses: frozenset[RunStatus]) -> list[sa.ColumnElement[bool]]:
    numbers: list[sa.ColumnElement[int]] = [
        sa.literal_column(str(int(status))) for status in sorted(statuses)
    ]
    conditions: list[sa.ColumnElement[bool]] = [runs.c.status.in_(numbers)]
    # The partial indexes are used only where their condition stands in the query.
    if max(statuses) < RunStatus.COMPLETED:
        conditions.append(is_active)
    elif min(statuses) > RunStatus.COMPLETED:
        conditions.append(ended_badly)
    return conditions


def _values(query: RunQuery, after: str | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "workspace": query.workspace,
        "bot": query.bot,
        "agent_id": query.agent_id,
        "conversation_key": query.conversation_key,
        "replay_of": query.replay_of,
        "created_after": _time(query.created_after, "created_after"),
        "created_before": _time(query.created_before, "created_before"),
    }
    if after is not None:
        values["after_time"], values["after_run"] = _parse(after)
    return {name: value for name, value in values.items() if value is not None}


def _time(value: datetime | None, field: str) -> int | None:
    return optional_microseconds("run query", field, value)


def _cursor(run: RunRecord) -> str:
    return f"{microseconds('run', 'created_at', run.created_at)}:{run.run_id}"


def _parse(cursor: str) -> tuple[int, str]:
    created, separator, run_id = cursor.partition(":")
    try:
        at = int(created)
        time(at)
    except (ValueError, OverflowError) as error:
        raise InvalidRecord("run page", "after", "must be a page's next_cursor") from error
    if not separator or not run_id:
        raise InvalidRecord("run page", "after", "must be a page's next_cursor")
    return at, run_id
