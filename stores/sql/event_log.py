"""The event log on SQL: appending and reading, and the writing that the ledger calls."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Collection, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from stores.errors import EventConflict, InvalidRecord
from stores.records import EventRecord, LogEntry, Page
from stores.sql.connection import Connection
from stores.sql.event_pages import EventPages, page_of_events
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from stores.sql.rows import Encoded, entry_record, entry_row, event_record, event_row
from stores.sql.tables import events, log_entries, runs
from stores.sql.values import check_limit

_has_key = sa.and_(
    events.c.workspace == sa.bindparam("of_workspace"),
    events.c.bot == sa.bindparam("of_bot"),
    events.c.source == sa.bindparam("of_source"),
    events.c.event_id == sa.bindparam("of_event"),
)
_event_columns = [column for column in events.c if column is not events.c.position]

_INSERT = (
    sa.insert(events)
    .inline()
    .values({column.name: sa.bindparam(column.name) for column in _event_columns})
)
_FIND = sa.select(events.c.position, events.c.digest, events.c.run_id).where(_has_key)
_ATTACH = (
    sa.update(events)
    .where(events.c.position == sa.bindparam("of_position"))
    .values(run_id=sa.bindparam("to_run"))
)
_SELECT = sa.select(*_event_columns).where(_has_key)
_SELECT_FOR_RUN = sa.select(*_event_columns).join(
    runs,
    sa.and_(
        runs.c.workspace == events.c.workspace,
        runs.c.bot == events.c.bot,
        runs.c.event_source == events.c.source,
        runs.c.event_id == events.c.event_id,
        runs.c.run_id == sa.bindparam("of_run"),
    ),
)

_entry_columns = [column for column in log_entries.c if column is not log_entries.c.position]
_INSERT_ENTRY = (
    sa.insert(log_entries)
    .inline()
    .values({column.name: sa.bindparam(column.name) for column in _entry_columns})
)
_SELECT_ENTRIES = (
    sa.select(
        log_entries.c.position,
        log_entries.c.run_id,
        log_entries.c.kind,
        log_entries.c.at,
        log_entries.c.sequence,
        log_entries.c.payload,
    )
    .where(
        log_entries.c.run_id == sa.bindparam("of_run"),
        log_entries.c.position > sa.bindparam("above"),
    )
    .order_by(log_entries.c.position)
    .limit(sa.bindparam("most"))
)


class SqlEventLog:
    """Implements `stores.event_log.EventLog`."""

    def __init__(self, *, journal: SqlJournal, readers: Readers) -> None:
        """Take the ways to write and to read."""
        self._journal = journal
        self._readers = readers
        self._pages = EventPages()

    def append(self, event: EventRecord) -> Future[bool]:
        """Log an event that starts no run; see the protocol."""
        if event.run_id is not None:
            raise InvalidRecord("event", "run_id", "must be None: RunLedger.accept starts runs")
        row = event_row(event, run_id=None)

        def work(connection: Connection) -> bool:
            if find_event(connection, row) is not None:
                return False
            write_event(connection, row)
            return True

        return self._journal.submit(work, size=len(event.envelope))

    def append_entries(self, entries: Sequence[LogEntry]) -> Future[None]:
        """Log facts that belong to no `RunFacts`; see the protocol."""
        rows = [entry_row(entry) for entry in entries]
        size = sum(len(entry.payload) for entry in entries)
        return self._journal.submit(lambda connection: write_entries(connection, rows), size=size)

    async def get(self, workspace: str, bot: str, source: str, event_id: str) -> EventRecord | None:
        """Return the event with this key, or `None`."""
        values = {
            "of_workspace": workspace,
            "of_bot": bot,
            "of_source": source,
            "of_event": event_id,
        }
        row = await self._readers.first(_SELECT, values)
        return None if row is None else event_record(row)

    async def get_for_run(self, run_id: str) -> EventRecord | None:
        """Return the event that started this run; `None` if there is no such run or event."""
        row = await self._readers.first(_SELECT_FOR_RUN, {"of_run": run_id})
        return None if row is None else event_record(row)

    async def page(
        self,
        conversation_key: str,
        *,
        types: Collection[str] = (),
        after: int | None = None,
        before: int | None = None,
        limit: int = 50,
        newest_first: bool = True,
        most_bytes: int | None = None,
    ) -> Page[EventRecord, int]:
        """Return a page of the events of a conversation; see the protocol."""
        statement, values = self._pages.statement(
            conversation_key,
            types=types,
            after=after,
            before=before,
            limit=limit,
            newest_first=newest_first,
            most_bytes=most_bytes,
        )
        return page_of_events(await self._readers.all(statement, values), limit=limit)

    async def entries(
        self, run_id: str, *, after_position: int = 0, limit: int = 1_000
    ) -> Sequence[LogEntry]:
        """Return entries of a run, oldest first, from after a position; empty without any."""
        check_limit(limit)
        values = {"of_run": run_id, "above": after_position, "most": limit}
        rows = await self._readers.all(_SELECT_ENTRIES, values)
        return [entry_record(row) for row in rows]


class FoundEvent(NamedTuple):
    """Where an event is stored, and the run it has."""

    position: int
    run_id: str | None


def find_event(connection: Connection, row: Encoded) -> FoundEvent | None:
    """Return the stored event with the key of an encoded one.

    Raises:
        EventConflict: Its content is another.
    """
    values = {
        "of_workspace": row["workspace"],
        "of_bot": row["bot"],
        "of_source": row["source"],
        "of_event": row["event_id"],
    }
    found = connection.first(_FIND, values)
    if found is None:
        return None
    position, digest, run_id = found
    if digest != row["digest"]:
        raise EventConflict(row["event_id"], run_id)
    return FoundEvent(position, run_id)


def write_event(connection: Connection, row: Encoded) -> None:
    """Write an encoded event."""
    connection.run(_INSERT, row)


def attach_run(connection: Connection, found: FoundEvent, run_id: str) -> None:
    """Give a stored event its run."""
    connection.run(_ATTACH, {"of_position": found.position, "to_run": run_id})


def write_entries(connection: Connection, rows: Sequence[Encoded]) -> None:
    """Write encoded log entries."""
    connection.run_many(_INSERT_ENTRY, rows)
