"""The run ledger on SQL."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from stores.errors import InvalidRecord
from stores.records import (
    Acceptance,
    Checkpoint,
    EventRecord,
    Page,
    ResultRecord,
    RunEnd,
    RunFacts,
    RunQuery,
    RunRecord,
    RunStatus,
    RunWarning,
    TranscriptItem,
)
from stores.sql import runs
from stores.sql.connection import Connection
from stores.sql.event_log import attach_run, find_event, write_entries, write_event
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from stores.sql.rows import (
    Encoded,
    checkpoint_record,
    checkpoint_row,
    entry_row,
    event_row,
    failure_text,
    item_row,
    result_record,
    result_row,
    run_record,
    run_row,
    snapshot_row,
    usage_text,
    warnings_text,
)
from stores.sql.run_pages import RunPages
from stores.sql.transcript import latest_position, write_items
from stores.sql.values import (
    check_ids,
    check_integers,
    check_limit,
    microseconds,
    optional_microseconds,
)


class SqlRunLedger:
    """Implements `stores.ledger.RunLedger`."""

    def __init__(self, *, journal: SqlJournal, readers: Readers) -> None:
        """Take the ways to write and to read."""
        self._journal = journal
        self._readers = readers
        self._pages = RunPages()

    def accept(
        self, event: EventRecord, run: RunRecord, item: TranscriptItem | None = None
    ) -> Future[Acceptance]:
        """Log an event, start its run and write its transcript item; see the protocol."""
        _check_belongs(event, run)
        work = _Accept.encode(event, run, item)
        size = len(event.envelope) + len(run.agent_snapshot)
        return self._journal.submit(work.run, size=size)

    def advance(
        self,
        run_id: str,
        status: RunStatus,
        *,
        at: datetime,
        instance_id: str | None = None,
        deadline: datetime | None = None,
        reserved_sequence: int | None = None,
        host_incarnation: str | None = None,
    ) -> Future[bool]:
        """Move a run forward to `QUEUED` or `RUNNING`; see the protocol."""
        statement = runs.ADVANCE.get(status)
        if statement is None:
            raise InvalidRecord("run", "status", "must be QUEUED or RUNNING: finish ends a run")
        check_ids("run", instance_id=instance_id)
        check_integers("run", reserved_sequence=reserved_sequence)
        values = {
            "of_run": run_id,
            "of_incarnation": host_incarnation,
            "to_status": int(status),
            "to_time": microseconds("run", "at", at),
            "to_instance": instance_id,
            "to_deadline": optional_microseconds("run", "deadline", deadline),
            "to_reserved": reserved_sequence,
        }
        return self._journal.submit(lambda connection: connection.run(statement, values) == 1)

    def record(self, facts: RunFacts) -> Future[None]:
        """Store facts of an active run, all or none; see the protocol."""
        encoded = _EncodedFacts.encode(facts)
        return self._journal.submit(encoded.record, size=encoded.size)

    def finish(self, end: RunEnd, facts: RunFacts | None = None) -> Future[bool]:
        """End a run together with its last facts, and drop its checkpoints; see the protocol."""
        work = _Finish.encode(end, facts or RunFacts(run_id=end.run_id))
        return self._journal.submit(work.run, size=work.facts.size)

    def claim(
        self, run_id: str, from_incarnation: str, host_id: str, incarnation: str
    ) -> Future[bool]:
        """Take over a waiting run of a host that is lost; see the protocol."""
        check_ids("host", host_id=host_id, incarnation=incarnation)
        values = {
            "of_run": run_id,
            "of_incarnation": from_incarnation,
            "to_host": host_id,
            "to_incarnation": incarnation,
        }
        return self._journal.submit(lambda connection: connection.run(runs.CLAIM, values) == 1)

    async def get(self, run_id: str) -> RunRecord | None:
        """Return a run, or `None`."""
        return await self._readers.read(lambda connection: runs.find_run(connection, run_id))

    async def list(
        self, query: RunQuery, *, limit: int = 50, after: str | None = None
    ) -> Page[RunRecord, str]:
        """Return runs, newest first; see the protocol."""
        return await self._readers.read(self._pages.reader(query, limit=limit, after=after))

    async def results(
        self, run_id: str, *, after_sequence: int = 0, limit: int = 1_000
    ) -> Sequence[ResultRecord]:
        """Return durable results of a run by delivered number, from after one; may be empty."""
        check_limit(limit)
        values = {"of_run": run_id, "above": after_sequence, "most": limit}
        rows = await self._readers.read(
            lambda connection: connection.all(runs.SELECT_RESULTS, values)
        )
        return [result_record(row) for row in rows]

    async def checkpoints(self, run_id: str) -> Sequence[Checkpoint]:
        """Return the checkpoints of an active run, by delivered number; may be empty."""
        values = {"of_run": run_id}
        rows = await self._readers.read(
            lambda connection: connection.all(runs.SELECT_CHECKPOINTS, values)
        )
        return [checkpoint_record(row) for row in rows]

    async def active_of_lost_hosts(self, now: datetime) -> Sequence[RunRecord]:
        """Return runs that have not ended and whose owner cannot end them, oldest first."""
        values = {"now": microseconds("host", "now", now)}

        def read(connection: Connection) -> Sequence[RunRecord]:
            rows = connection.all(runs.SELECT_OF_LOST_HOSTS, values)
            return [run_record(row) for row in rows]

        return await self._readers.read(read)


def _check_belongs(event: EventRecord, run: RunRecord) -> None:
    pairs = (
        ("workspace", run.workspace, event.workspace),
        ("bot", run.bot, event.bot),
        ("event_source", run.event_source, event.source),
        ("event_id", run.event_id, event.event_id),
    )
    for field, of_run, of_event in pairs:
        if of_run != of_event:
            raise InvalidRecord("run", field, f"must be its event's, {of_event!r}")


@dataclass(frozen=True, slots=True)
class _Accept:
    """The encoded rows of an acceptance."""

    event: Encoded
    record: RunRecord
    row: Encoded
    snapshot: Encoded
    item: Encoded | None

    @classmethod
    def encode(cls, event: EventRecord, run: RunRecord, item: TranscriptItem | None) -> _Accept:
        snapshot = snapshot_row(run.agent_snapshot)
        return cls(
            event=event_row(event, run_id=run.run_id),
            record=run,
            row=run_row(run, snapshot_digest=snapshot["digest"]),
            snapshot=snapshot,
            item=None if item is None else item_row(item),
        )

    def run(self, connection: Connection) -> Acceptance:
        found = find_event(connection, self.event)
        if found is not None and found.run_id is not None:
            known = runs.find_run(connection, found.run_id)
            if known is not None:
                return Acceptance(known, duplicate=True)
        if found is None:
            write_event(connection, self.event)
        else:
            attach_run(connection, found, self.record.run_id)
        return Acceptance(self._write(connection), duplicate=False)

    def _write(self, connection: Connection) -> RunRecord:
        latest = latest_position(connection, self.row["conversation_key"])
        runs.write_snapshot(connection, self.snapshot)
        connection.run(runs.INSERT, {**self.row, "latest_cursor_position": latest})
        if self.item is not None:
            write_items(connection, [self.item])
        return replace(self.record, latest_cursor_position=latest)


@dataclass(frozen=True, slots=True)
class _EncodedFacts:
    """The encoded rows of a run's facts."""

    owner: Encoded
    changes: Encoded
    results: Sequence[Encoded]
    items: Sequence[Encoded]
    entries: Sequence[Encoded]
    checkpoints: Sequence[Encoded]
    dropped: Sequence[Encoded]
    warnings: tuple[RunWarning, ...]
    size: int

    @classmethod
    def encode(cls, facts: RunFacts) -> _EncodedFacts:
        _check_of_run(facts)
        check_integers("run facts", reserved_sequence=facts.reserved_sequence)
        run_id = facts.run_id
        return cls(
            owner={"of_run": run_id, "of_incarnation": facts.host_incarnation},
            changes={
                "to_reserved": facts.reserved_sequence,
                "to_first_delta": optional_microseconds(
                    "run facts", "first_delta_at", facts.first_delta_at
                ),
                "to_usage": usage_text(facts.usage),
            },
            results=[result_row(result) for result in facts.results],
            items=[item_row(item) for item in facts.items],
            entries=[entry_row(entry) for entry in facts.entries],
            checkpoints=[checkpoint_row(checkpoint) for checkpoint in facts.checkpoints],
            dropped=[
                {"of_run": run_id, "of_message": message_id}
                for message_id in facts.dropped_checkpoints
            ],
            warnings=_checked(facts.warnings),
            size=_size(facts),
        )

    def record(self, connection: Connection) -> None:
        runs.check_writable(connection, self.owner)
        if any(value is not None for value in self.changes.values()):
            connection.run(runs.TOUCH, {**self.owner, **self.changes})
        self.write(connection)

    def write(self, connection: Connection) -> None:
        connection.run_many(runs.INSERT_RESULT, self.results)
        if self.items:
            write_items(connection, self.items)
        write_entries(connection, self.entries)
        for checkpoint in self.checkpoints:
            runs.write_checkpoint(connection, checkpoint)
        connection.run_many(runs.DROP_CHECKPOINT, self.dropped)
        if self.warnings:
            runs.add_warnings(connection, self.owner["of_run"], self.warnings)


def _check_of_run(facts: RunFacts) -> None:
    for kind in (facts.results, facts.entries, facts.checkpoints):
        for fact in kind:
            if fact.run_id != facts.run_id:
                rule = f"must be the facts' own, {facts.run_id!r}"
                raise InvalidRecord(type(fact).__name__, "run_id", rule)


def _checked(warnings: tuple[RunWarning, ...]) -> tuple[RunWarning, ...]:
    # They are encoded in the writer, together with those already stored.
    warnings_text(warnings)
    return warnings


def _size(facts: RunFacts) -> int:
    return (
        sum(len(result.payload) for result in facts.results)
        + sum(len(item.content) + len(item.text or "") for item in facts.items)
        + sum(len(entry.payload) for entry in facts.entries)
        + sum(len(point.text) + len(point.reasoning) for point in facts.checkpoints)
    )


@dataclass(frozen=True, slots=True)
class _Finish:
    """The encoded end of a run, with its last facts."""

    values: Encoded
    facts: _EncodedFacts

    @classmethod
    def encode(cls, end: RunEnd, facts: RunFacts) -> _Finish:
        if not end.status.is_terminal:
            raise InvalidRecord("run end", "status", f"must be terminal, is {end.status.name}")
        if facts.run_id != end.run_id:
            raise InvalidRecord("run facts", "run_id", f"must be the end's, {end.run_id!r}")
        check_integers("run end", last_sequence=end.last_sequence)
        last_facts = replace(facts, warnings=facts.warnings + end.warnings)
        encoded = _EncodedFacts.encode(last_facts)
        usage = end.usage if end.usage is not None else facts.usage
        values = {
            "of_run": end.run_id,
            "of_incarnation": end.host_incarnation,
            "to_status": int(end.status),
            "to_time": microseconds("run end", "ended_at", end.ended_at),
            "to_last": end.last_sequence,
            "to_reserved": max(end.last_sequence, facts.reserved_sequence or 0),
            "to_failure": failure_text(end.failure),
            "to_usage": usage_text(usage),
            "to_first_delta": encoded.changes["to_first_delta"],
        }
        return cls(values, encoded)

    def run(self, connection: Connection) -> bool:
        if connection.run(runs.FINISH, self.values) == 0:
            return False
        self.facts.write(connection)
        connection.run(runs.DROP_CHECKPOINTS, self.values)
        return True
