"""An acceptance in one statement, for an engine that can: PostgreSQL.

Event, place in the conversation, item, agent and run are six statements when each is asked for
alone, and six times the way to the server and back. What the one statement returns is a row with
the position before the item's own, which is the run's snapshot of its conversation. It returns none
and writes nothing when the event is known, and the six have to find out the rest.

It rests on what every write transaction has: there is no other at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from stores.sql.rows import Encoded
from stores.sql.tables import agent_snapshots, conversations, events, runs, transcript_items

# The rows share names of columns, so that a parameter says whose it is.
_EVENT, _RUN, _ITEM, _SNAPSHOT = "event", "run", "item", "snapshot"


def values_at_once(*, event: Encoded, run: Encoded, item: Encoded, snapshot: Encoded) -> Encoded:
    """Return the values of the statement."""
    rows = ((_EVENT, event), (_RUN, run), (_ITEM, item), (_SNAPSHOT, snapshot))
    return {f"{of}_{name}": value for of, row in rows for name, value in row.items()}


def accept_at_once() -> sa.Select[tuple[int | None]]:
    """Return the statement."""
    columns = [column for column in events.c if column is not events.c.position]
    event = (
        insert(events)
        .from_select([column.name for column in columns], sa.select(*_values(_EVENT, columns)))
        .on_conflict_do_nothing(index_elements=["workspace", "bot", "source", "event_id"])
        .returning(events.c.event_id)
        .cte("the_event")
    )
    begun = insert(conversations).from_select(
        ["conversation_key", "last_position"],
        sa.select(
            *_values(_ITEM, [transcript_items.c.conversation_key]), sa.literal_column("1")
        ).select_from(event),
    )
    place = (
        begun.on_conflict_do_update(
            index_elements=["conversation_key"],
            set_={"last_position": conversations.c.last_position + 1},
        )
        .returning(conversations.c.last_position)
        .cte("place")
    )
    latest = sa.func.nullif(place.c.last_position - 1, 0)
    snapshot = (
        insert(agent_snapshots)
        .from_select(
            [column.name for column in agent_snapshots.c],
            sa.select(*_values(_SNAPSHOT, agent_snapshots.c)).select_from(event),
        )
        .on_conflict_do_nothing()
        .cte("the_snapshot")
    )
    item = _insert(
        transcript_items, _ITEM, place, transcript_items.c.position, place.c.last_position
    ).cte("the_item")
    run = _insert(runs, _RUN, place, runs.c.latest_cursor_position, latest).cte("the_run")
    return sa.select(latest).select_from(place).add_cte(snapshot, item, run)


def _insert(
    table: sa.Table,
    of: str,
    place: sa.CTE,
    placed: sa.Column[Any],
    value: sa.ColumnElement[Any],
) -> sa.Insert:
    columns = [
        column
        for column in table.c
        if column is not placed and column is not table.autoincrement_column
    ]
    return sa.insert(table).from_select(
        [*(column.name for column in columns), placed.name],
        sa.select(*_values(of, columns), value).select_from(place),
    )


def _values(of: str, columns: Iterable[sa.Column[Any]]) -> list[sa.ColumnElement[Any]]:
    return [_value(f"{of}_{column.name}", column) for column in columns]


def _value(name: str, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    parameter = sa.bindparam(name, type_=column.type)
    # Alone among the types here bytes are sent without theirs, and NULL would be taken for text.
    is_bytes = isinstance(column.type, sa.LargeBinary)
    return sa.cast(parameter, column.type) if is_bytes else parameter
