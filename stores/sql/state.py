"""State on SQL.

A read that is bound by bytes is one statement: it adds up sizes in the order of the keys, and reads
the values up to the first that goes over the bound, which tells that there is more.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from stores.errors import InvalidRecord, ValueTooLarge, VersionConflict
from stores.json_text import check_json
from stores.records import Page
from stores.sql.connection import Connection, Row
from stores.sql.journal import SqlJournal
from stores.sql.key_ranges import key_range
from stores.sql.readers import Readers
from stores.sql.tables import deleted_state, state_values
from stores.sql.values import check_ids, check_keys, check_limit, check_text, microseconds, time
from stores.state import PAGE_BYTES, StateEntry, StateSnapshot

_ALIASES = {"conversation_id": "external.conversation_id"}

_REMEMBERED = timedelta(days=30)
# Each deletion forgets so many old ones: more than it adds, and never much.
_FORGOTTEN_AT_ONCE = 8

_SCOPES = 8

_state = state_values.c
_is_key = sa.and_(
    _state.scope_key == sa.bindparam("of_scope"), _state.key == sa.bindparam("of_key")
)
_was_key = sa.and_(
    deleted_state.c.scope_key == sa.bindparam("of_scope"),
    deleted_state.c.key == sa.bindparam("of_key"),
)
_entry = (_state.key, _state.value, _state.version, _state.updated_at)

_SELECT = sa.select(*_entry).where(_is_key)
_SELECT_VERSION = sa.select(_state.version).where(_is_key)
_INSERT = sa.insert(state_values)
_UPDATE = (
    sa.update(state_values)
    .where(_is_key)
    .values(
        {
            name: sa.bindparam(f"to_{name}")
            for name in ("workspace", "version", "updated_at", "size_bytes", "value")
        }
    )
)
_DELETE = sa.delete(state_values).where(_is_key)

_SELECT_DELETED = sa.select(deleted_state.c.version).where(_was_key)
_REMEMBER = sa.insert(deleted_state)
_RECALL = sa.delete(deleted_state).where(_was_key)
_deleted_key = (deleted_state.c.scope_key, deleted_state.c.key)
_FORGET = sa.delete(deleted_state).where(
    sa.tuple_(*_deleted_key).in_(
        sa.select(*_deleted_key)
        .where(deleted_state.c.deleted_at < sa.bindparam("deleted_before"))
        .order_by(deleted_state.c.deleted_at)
        .limit(_FORGOTTEN_AT_ONCE)
    )
)

_within = sa.and_(
    _state.scope_key == sa.bindparam("of_scope"),
    _state.key >= sa.bindparam("from_key"),
    _state.key != sa.bindparam("behind_key"),
    _state.key < sa.bindparam("below_key"),
)


def _sizes_up_to(chosen: sa.Subquery, *order: sa.ColumnElement[Any]) -> sa.Subquery:
    up_to = sa.func.sum(chosen.c.size_bytes).over(order_by=order, rows=(None, 0))
    number = sa.func.row_number().over(order_by=order)
    return sa.select(chosen, up_to.label("up_to"), number.label("number")).subquery("summed")


def _values_of(summed: sa.Subquery, *order: sa.ColumnElement[Any]) -> sa.Select[Any]:
    is_it = sa.and_(_state.scope_key == summed.c.scope_key, _state.key == summed.c.key)
    return (
        sa.select(_state.scope_key, _state.size_bytes, *_entry)
        .join_from(summed, state_values, is_it)
        .where(
            sa.or_(
                summed.c.up_to - summed.c.size_bytes <= sa.bindparam("most_bytes"),
                # The second tells that there is more, where the first goes over the bound itself.
                summed.c.number <= sa.literal_column("2"),
            )
        )
        .order_by(*order)
    )


_page = (
    sa.select(_state.scope_key, _state.key, _state.size_bytes)
    .where(_within)
    .order_by(_state.key)
    .limit(sa.bindparam("most"))
    .subquery("page")
)
_summed_page = _sizes_up_to(_page, _page.c.key)
_SELECT_PAGE = _values_of(_summed_page, _summed_page.c.key)

_scopes: list[sa.BindParameter[str]] = [
    sa.bindparam(f"scope_{number}") for number in range(_SCOPES)
]
_rank = sa.case(
    *((_state.scope_key == scope, sa.literal_column(str(n))) for n, scope in enumerate(_scopes))
)
_snapshot = (
    sa.select(_state.scope_key, _state.key, _state.size_bytes, _rank.label("rank"))
    .where(_state.scope_key.in_(_scopes))
    .subquery("chosen")
)
_summed_snapshot = _sizes_up_to(_snapshot, _snapshot.c.rank, _snapshot.c.key)
_SELECT_SNAPSHOT = _values_of(_summed_snapshot, _summed_snapshot.c.rank, _summed_snapshot.c.key)


class SqlState:
    """Implements `stores.state.State`."""

    def __init__(
        self,
        *,
        journal: SqlJournal,
        readers: Readers,
        clock: Callable[[], datetime],
        most_bytes: int,
    ) -> None:
        """Take the ways to write and to read, what tells the time, and a value's limit."""
        self._journal = journal
        self._readers = readers
        self._clock = clock
        self._most_bytes = most_bytes

    def set(
        self,
        scope_key: str,
        key: str,
        value: str,
        *,
        expected_version: int | None = None,
        workspace: str = "",
    ) -> Future[StateEntry]:
        """Store a value; see the protocol."""
        key = checked_key(scope_key, key)
        check_ids("state", workspace=workspace)
        size = self._check_value(value)
        now = microseconds("state", "now", self._clock())
        row = {
            "workspace": workspace,
            "updated_at": now,
            "size_bytes": size + len(key.encode()),
            "value": value,
        }

        def work(connection: Connection) -> StateEntry:
            version = _write(connection, scope_key, key, row, expected_version)
            return StateEntry(key, value, version, time(now))

        return self._journal.submit(work, size=size)

    def delete(
        self, scope_key: str, key: str, *, expected_version: int | None = None
    ) -> Future[bool]:
        """Delete a value; see the protocol."""
        key = checked_key(scope_key, key)
        now = self._clock()
        deleted_at = microseconds("state", "now", now)
        deleted_before = microseconds("state", "now", now - _REMEMBERED)

        def work(connection: Connection) -> bool:
            version = _stored_version(connection, scope_key, key, expected_version)
            if version == 0:
                return False
            delete_value(connection, scope_key, key, version=version, deleted_at=deleted_at)
            connection.run(_FORGET, {"deleted_before": deleted_before})
            return True

        return self._journal.submit(work)

    async def get(self, scope_key: str, key: str) -> StateEntry | None:
        """Return a value, or `None`."""
        values = {"of_scope": scope_key, "of_key": _ALIASES.get(key, key)}
        row = await self._readers.first(_SELECT, values)
        return None if row is None else _decode(row)

    async def list(
        self,
        scope_key: str,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int = 50,
        most_bytes: int = PAGE_BYTES,
    ) -> Page[StateEntry, str]:
        """Return the values of a scope, by key; see the protocol."""
        check_limit(limit)
        values = {
            "of_scope": scope_key,
            **key_range(prefix, _ALIASES.get(after, after) if after else None),
            # One more tells whether there are more.
            "most": limit + 1,
            "most_bytes": most_bytes,
        }
        rows = await self._readers.all(_SELECT_PAGE, values)
        fitting = _fitting(rows, most_bytes)
        entries = tuple(_decode(row[2:]) for row in rows[: min(limit, max(1, fitting))])
        return Page(entries, entries[-1].key if len(rows) > len(entries) else None)

    async def snapshot(
        self, scope_keys: Sequence[str], *, most_bytes: int = PAGE_BYTES
    ) -> StateSnapshot:
        """Return all values of several scopes as of one moment; see the protocol."""
        if len(scope_keys) > _SCOPES:
            rule = f"must be at most {_SCOPES}, are {len(scope_keys)}"
            raise InvalidRecord("state snapshot", "scope_keys", rule)
        entries: dict[str, list[StateEntry]] = {scope_key: [] for scope_key in scope_keys}
        if not entries:
            return StateSnapshot(entries, truncated=False)
        padded = [*scope_keys, *[scope_keys[-1]] * (_SCOPES - len(scope_keys))]
        values: dict[str, Any] = {f"scope_{n}": scope for n, scope in enumerate(padded)}
        rows = await self._readers.all(_SELECT_SNAPSHOT, {**values, "most_bytes": most_bytes})
        fitting = _fitting(rows, most_bytes)
        for row in rows[:fitting]:
            entries[row[0]].append(_decode(row[2:]))
        return StateSnapshot(entries, truncated=fitting < len(rows))

    def _check_value(self, value: str) -> int:
        check_text("state", "value", value)
        size = len(value.encode())
        if size > self._most_bytes:
            raise ValueTooLarge("state", "value", size, self._most_bytes)
        check_json("state", "value", value)
        return size


def delete_value(
    connection: Connection, scope_key: str, key: str, *, version: int, deleted_at: int
) -> None:
    """Delete a stored value, and keep the version it had."""
    connection.run(_DELETE, {"of_scope": scope_key, "of_key": key})
    remembered = {
        "scope_key": scope_key,
        "key": key,
        "version": version,
        "deleted_at": deleted_at,
    }
    connection.run(_REMEMBER, remembered)


def checked_key(scope_key: str, key: str) -> str:
    """Return a key as it is stored.

    Raises:
        InvalidRecord: Scope or key is none.
    """
    check_keys("state", scope_key=scope_key)
    check_ids("state", key=key)
    if not key:
        raise InvalidRecord("state", "key", "must not be empty")
    return _ALIASES.get(key, key)


def _write(
    connection: Connection,
    scope_key: str,
    key: str,
    row: dict[str, Any],
    expected_version: int | None,
) -> int:
    version = _stored_version(connection, scope_key, key, expected_version)
    place = {"of_scope": scope_key, "of_key": key}
    if version:
        values = {f"to_{name}": value for name, value in row.items()}
        connection.run(_UPDATE, {**place, **values, "to_version": version + 1})
        return version + 1
    deleted = connection.first(_SELECT_DELETED, place)
    if deleted is not None:
        version = deleted[0]
        connection.run(_RECALL, place)
    connection.run(_INSERT, {"scope_key": scope_key, "key": key, "version": version + 1, **row})
    return int(version) + 1


def _stored_version(
    connection: Connection, scope_key: str, key: str, expected_version: int | None
) -> int:
    row = connection.first(_SELECT_VERSION, {"of_scope": scope_key, "of_key": key})
    actual = 0 if row is None else int(row[0])
    if expected_version is not None and expected_version != actual:
        raise VersionConflict(key, expected_version, actual)
    return actual


def _fitting(rows: Iterable[Row], most_bytes: int) -> int:
    """Return how many rows fit, of those whose size is their second column."""
    count = 0
    for row in rows:
        most_bytes -= row[1]
        if most_bytes < 0:
            break
        count += 1
    return count


def _decode(row: Row) -> StateEntry:
    return StateEntry(row[0], row[1], row[2], time(row[3]))
