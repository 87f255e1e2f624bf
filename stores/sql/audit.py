"""The audit on SQL.

What flows where, all of it in the event loop until the journal::

    append --- done, failed --->  rows  --- a moment later --->  journal
       |                          ^  ^                              |
       +-- refused --> held ------+  +---- database away: later ----+
                       like ones counted, for up to a second
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future
from collections.abc import Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from stores.audit import AuditOutcome, AuditQuery, AuditRecord
from stores.errors import StoreError, StoreOverloaded, StoreUnavailable
from stores.records import Page
from stores.sql.audit_pages import AuditPages, page_of_audit
from stores.sql.audit_rows import audit_row
from stores.sql.connection import Connection
from stores.sql.delivery import logger
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from stores.sql.rows import Encoded
from stores.sql.tables import audit

# Calls that follow each other share a commit, which costs more than all else about a short call; a
# crash loses no more than the last moment.
GATHERED_SECONDS = 0.05
GATHERED_ROWS = 256
HELD_SECONDS = 1.0
HELD_KINDS = 1_024
WAITING_ROWS = 10_000
_RETRY_SECONDS = 1.0
# About what a row holds in memory.
_ROW_BYTES = 512

_ALIKE = ("run_id", "runner_id", "caller", "rpc", "resource", "scope", "reason")

_INSERT = (
    sa.insert(audit)
    .inline()
    .values({c.name: sa.bindparam(c.name) for c in audit.c if c is not audit.c.position})
)


class SqlAudit:
    """Implements `stores.audit.Audit`."""

    def __init__(self, *, journal: SqlJournal, readers: Readers, loop: AbstractEventLoop) -> None:
        """Take the ways to write and to read, and the loop in which it is used."""
        self._journal = journal
        self._readers = readers
        self._loop = loop
        self._pages = AuditPages()
        self._held: dict[tuple[Any, ...], Encoded] = {}
        self._release_timer: asyncio.TimerHandle | None = None
        self._rows: list[Encoded] = []
        self._next_turn: asyncio.TimerHandle | None = None
        self._under_way: set[Future[None]] = set()
        self._rows_under_way = 0
        self._lost = 0

    def append(self, record: AuditRecord) -> None:
        """Write a row, some time soon; see the protocol."""
        row = audit_row(record)
        if record.outcome is AuditOutcome.REFUSED:
            self._hold(row)
        else:
            self._put(row)

    async def flush(self) -> None:
        """Write what is held, and wait until the outcome of all rows so far is known."""
        self._release()
        self._hand_over()
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def page(
        self, query: AuditQuery, *, limit: int = 50, after: str | None = None
    ) -> Page[AuditRecord, str]:
        """Return rows, newest first; see the protocol."""
        statement, values = self._pages.statement(query, limit=limit, after=after)
        await self.flush()
        return page_of_audit(await self._readers.all(statement, values), limit=limit)

    def lost(self) -> int:
        """Return how many calls could not be recorded since the stores were opened."""
        return self._lost

    def _hold(self, row: Encoded) -> None:
        alike = tuple(row[name] for name in _ALIKE)
        first = self._held.get(alike)
        if first is not None:
            first["count"] += row["count"]
            first["duration"] += row["duration"]
            return
        if len(self._held) >= HELD_KINDS:
            self._release()
        self._held[alike] = row
        if self._release_timer is None:
            self._release_timer = self._loop.call_later(HELD_SECONDS, self._release)

    def _release(self) -> None:
        if self._release_timer is not None:
            self._release_timer.cancel()
            self._release_timer = None
        for row in self._held.values():
            self._put(row)
        self._held.clear()

    def _put(self, row: Encoded) -> None:
        if len(self._rows) + self._rows_under_way >= WAITING_ROWS:
            self._lose([row], "too many rows wait for the database")
            return
        self._rows.append(row)
        if len(self._rows) >= GATHERED_ROWS:
            self._hand_over()
        elif self._next_turn is None:
            self._next_turn = self._loop.call_later(GATHERED_SECONDS, self._hand_over)

    def _hand_over(self) -> None:
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        rows, self._rows = self._rows, []
        if not rows:
            return
        try:
            future = self._journal.submit(
                lambda connection: _write(connection, rows), size=len(rows) * _ROW_BYTES
            )
        except StoreError as error:
            self._failed(rows, error)
            return
        self._under_way.add(future)
        self._rows_under_way += len(rows)
        future.add_done_callback(partial(self._settled, rows))

    def _settled(self, rows: list[Encoded], future: Future[None]) -> None:
        self._under_way.discard(future)
        self._rows_under_way -= len(rows)
        error = future.exception()
        if error is not None:
            self._failed(rows, error)

    def _failed(self, rows: list[Encoded], error: BaseException) -> None:
        # What may be stored already is not written again: a row too many accuses somebody.
        later = isinstance(error, StoreOverloaded) or (
            isinstance(error, StoreUnavailable) and not error.in_doubt
        )
        if not later:
            self._lose(rows, str(error))
            return
        self._rows[:0] = rows
        if self._next_turn is not None:
            self._next_turn.cancel()
        self._next_turn = self._loop.call_later(_RETRY_SECONDS, self._hand_over)

    def _lose(self, rows: Sequence[Encoded], why: str) -> None:
        if self._lost == 0:
            logger.error("calls cannot be recorded in the audit: %s", why)
        self._lost += sum(row["count"] for row in rows)


def _write(connection: Connection, rows: Sequence[Encoded]) -> None:
    connection.run_many(_INSERT, rows)
