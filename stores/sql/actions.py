"""Actions on SQL.

Each step reads the action and writes it in one transaction, of which there is one at a time for all
hosts on the database: what was read is what is there.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from stores.actions import ActionQuery, ActionRecord, ActionStatus, EntryOf, PutAction
from stores.errors import ActionConflict, InvalidRecord
from stores.records import Page
from stores.sql.action_rows import action_record, action_row
from stores.sql.connection import Connection
from stores.sql.event_log import write_entries
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from stores.sql.rows import entry_row
from stores.sql.runs import check_writable
from stores.sql.tables import actions, hosts, is_open_action
from stores.sql.values import check_ids, check_limit, check_text, microseconds

_LOST_AT_ONCE = 100
_ENDED_BY_EXECUTION = frozenset({ActionStatus.EXECUTED, ActionStatus.FAILED})
# Above every UUID.
_NEWEST = "~"

_columns = actions.c
_SELECT = sa.select(actions).where(_columns.action_id == sa.bindparam("of_action"))
_SELECT_BY_KEY = sa.select(actions).where(
    _columns.scope_key == sa.bindparam("of_scope"),
    _columns.idempotency_key == sa.bindparam("of_key"),
)
_SELECT_LOST = (
    sa.select(actions)
    .outerjoin(hosts, hosts.c.host_id == _columns.host_id)
    .where(
        is_open_action,
        _columns.status == sa.literal_column(str(int(ActionStatus.EXECUTING))),
        sa.or_(
            hosts.c.host_id.is_(None),
            hosts.c.incarnation != _columns.host_incarnation,
            hosts.c.lease_until < sa.bindparam("now"),
        ),
    )
    .order_by(_columns.action_id)
    .limit(sa.bindparam("most"))
)
_INSERT = sa.insert(actions)
_UPDATE = (
    sa.update(actions)
    .where(_columns.action_id == sa.bindparam("of_action"))
    .values(
        {
            column.name: sa.bindparam(column.name, type_=column.type)
            for column in _columns
            if not column.primary_key
        }
    )
)

_Step = Callable[[ActionRecord], ActionRecord | None]


class SqlActions:
    """Implements `stores.actions.Actions`."""

    def __init__(self, *, journal: SqlJournal, readers: Readers) -> None:
        """Take the ways to write and to read."""
        self._journal = journal
        self._readers = readers
        self._lists: dict[tuple[str, ...], sa.Select[Any]] = {}

    def put(self, action: ActionRecord, *, entry: EntryOf) -> Future[PutAction]:
        """Store an action, unless its key is known; see the protocol."""
        row = action_row(action)
        key = {"of_scope": action.scope_key, "of_key": action.idempotency_key}
        owner = {"of_run": action.run_id, "of_incarnation": action.host_incarnation}

        def work(connection: Connection) -> PutAction:
            found = connection.first(_SELECT_BY_KEY, key)
            known = None if found is None else action_record(found)
            if known is not None and known.digest != action.digest:
                raise ActionConflict(known.action_id, known.run_id)
            if known is not None and not _is_asked_anew(known, action):
                return PutAction(known, is_new=False)
            check_writable(connection, owner)
            if known is None:
                connection.run(_INSERT, row)
                stored = action
            else:
                stored = replace(action, action_id=known.action_id, requested_at=known.requested_at)
                _update(connection, stored)
            _write_entry(connection, entry(stored))
            return PutAction(stored, is_new=True)

        return self._journal.submit(work, size=len(action.target or "") + len(action.payload or ""))

    def begin(
        self,
        action_id: str,
        *,
        at: datetime,
        decided_by: str,
        detail: str,
        host_id: str,
        host_incarnation: str,
        entry: EntryOf,
    ) -> Future[ActionRecord | None]:
        """Say that an action is approved and executes; see the protocol."""
        check_text("action", "detail", detail)
        check_ids("action", decided_by=decided_by, host_id=host_id)
        check_ids("action", host_incarnation=host_incarnation)
        microseconds("action", "at", at)

        def step(action: ActionRecord) -> ActionRecord | None:
            if action.status is not ActionStatus.AWAITING_APPROVAL:
                return None
            return replace(
                action,
                status=ActionStatus.EXECUTING,
                missing=(),
                detail=detail,
                decided_at=at,
                decided_by=decided_by,
                started_at=at,
                host_id=host_id,
                host_incarnation=host_incarnation,
            )

        return self._move(action_id, step, entry)

    def reject(
        self, action_id: str, *, at: datetime, decided_by: str, detail: str, entry: EntryOf
    ) -> Future[ActionRecord | None]:
        """Say that an action will not be executed; see the protocol."""
        check_ids("action", decided_by=decided_by)
        check_text("action", "detail", detail)
        microseconds("action", "at", at)

        def step(action: ActionRecord) -> ActionRecord | None:
            if action.status is not ActionStatus.AWAITING_APPROVAL:
                return None
            return replace(
                action,
                status=ActionStatus.REJECTED,
                missing=(),
                decided_at=at,
                decided_by=decided_by,
                ended_at=at,
                detail=detail,
            )

        return self._move(action_id, step, entry)

    def settle(
        self,
        action_id: str,
        status: ActionStatus,
        *,
        at: datetime,
        host_incarnation: str,
        result: str | None = None,
        detail: str = "",
        entry: EntryOf,
    ) -> Future[ActionRecord | None]:
        """Say how an execution ended; see the protocol."""
        if status not in _ENDED_BY_EXECUTION:
            raise InvalidRecord("action", "status", "must be EXECUTED or FAILED")
        check_text("action", "result", result)
        check_text("action", "detail", detail)
        microseconds("action", "at", at)

        def step(action: ActionRecord) -> ActionRecord | None:
            is_mine = action.host_incarnation == host_incarnation
            if action.status is not ActionStatus.EXECUTING or not is_mine:
                return None
            return replace(action, status=status, ended_at=at, result=result, detail=detail)

        return self._move(action_id, step, entry, size=len(result or ""))

    def fail_lost(
        self, now: datetime, *, detail: str, entry: EntryOf
    ) -> Future[Sequence[ActionRecord]]:
        """Let actions fail whose host is gone; see the protocol."""
        check_text("action", "detail", detail)
        values = {"now": microseconds("host", "now", now), "most": _LOST_AT_ONCE}

        def work(connection: Connection) -> Sequence[ActionRecord]:
            failed = [
                replace(action_record(row), status=ActionStatus.FAILED, ended_at=now, detail=detail)
                for row in connection.all(_SELECT_LOST, values)
            ]
            for action in failed:
                _update(connection, action)
                _write_entry(connection, entry(action))
            return failed

        return self._journal.submit(work)

    async def get(self, action_id: str) -> ActionRecord | None:
        """Return an action, or `None`."""
        row = await self._readers.first(_SELECT, {"of_action": action_id})
        return None if row is None else action_record(row)

    async def list(
        self, query: ActionQuery, *, limit: int = 50, after: str | None = None
    ) -> Page[ActionRecord, str]:
        """Return actions, newest first; see the protocol."""
        check_limit(limit)
        narrowed = _narrowed(query)
        key = (*narrowed, str(_is_of_open(query)))
        statement = self._lists.get(key)
        if statement is None:
            statement = self._lists[key] = list_statement(query)
        # One more tells whether there are more.
        values = {"below": _NEWEST if after is None else after, "most": limit + 1}
        of = {f"of_{name}": value for name, value in narrowed.items()}
        rows = await self._readers.all(statement, {**values, **of})
        items = tuple(action_record(row) for row in rows[:limit])
        return Page(items, items[-1].action_id if len(rows) > limit else None)

    def _move(
        self, action_id: str, step: _Step, entry: EntryOf, *, size: int = 0
    ) -> Future[ActionRecord | None]:
        check_ids("action", action_id=action_id)

        def work(connection: Connection) -> ActionRecord | None:
            row = connection.first(_SELECT, {"of_action": action_id})
            moved = None if row is None else step(action_record(row))
            if moved is not None:
                _update(connection, moved)
                _write_entry(connection, entry(moved))
            return moved

        return self._journal.submit(work, size=size)


def list_statement(query: ActionQuery) -> sa.Select[Any]:
    """Return the statement of a page of actions; it goes by which fields narrow, not to what."""
    conditions = [_columns[name] == sa.bindparam(f"of_{name}") for name in _narrowed(query)]
    if _is_of_open(query):
        # Few actions are open: with this the planner takes their index.
        conditions.append(is_open_action)
    return (
        sa.select(actions)
        .where(_columns.action_id < sa.bindparam("below"), *conditions)
        .order_by(_columns.action_id.desc())
        .limit(sa.bindparam("most"))
    )


def _narrowed(query: ActionQuery) -> dict[str, Any]:
    return {
        name: value
        for name in ("status", "agent_id", "run_id")
        if (value := getattr(query, name)) is not None
    }


def _is_of_open(query: ActionQuery) -> bool:
    return query.status is not None and query.status < ActionStatus.RECORDED


def _is_asked_anew(known: ActionRecord, action: ActionRecord) -> bool:
    return known.status is ActionStatus.RECORDED and action.status is not ActionStatus.RECORDED


def _update(connection: Connection, action: ActionRecord) -> None:
    connection.run(_UPDATE, {**action_row(action), "of_action": action.action_id})


def _write_entry(connection: Connection, entry: Any) -> None:
    if entry is not None:
        write_entries(connection, [entry_row(entry)])
