"""What the run ledger writes: encoded in the caller, then run as a piece of work.

Each class holds the rows of one piece. `encode` checks and encodes in the caller's thread, what
takes a connection runs in the writer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import NamedTuple

from stores.errors import InvalidRecord
from stores.records import (
    Acceptance,
    EventRecord,
    RunEnd,
    RunFacts,
    RunRecord,
    RunWarning,
    TranscriptItem,
)
from stores.sql import runs
from stores.sql.acceptance import values_at_once
from stores.sql.connection import Connection
from stores.sql.event_log import attach_run, find_event, write_entries, write_event
from stores.sql.journal import Work
from stores.sql.rows import (
    Encoded,
    checkpoint_row,
    entry_row,
    event_row,
    failure_text,
    item_row,
    result_row,
    run_row,
    snapshot_row,
    usage_text,
    warnings_text,
)
from stores.sql.transcript import latest_position, write_item, write_items
from stores.sql.values import (
    check_ids,
    check_integers,
    check_text,
    microseconds,
    optional_microseconds,
)


def check_belongs(event: EventRecord, run: RunRecord) -> None:
    """Check that a run is its event's.

    Raises:
        InvalidRecord: It names another event.
    """
    pairs = (
        ("workspace", run.workspace, event.workspace),
        ("bot", run.bot, event.bot),
        ("event_source", run.event_source, event.source),
        ("event_id", run.event_id, event.event_id),
    )
    for field, of_run, of_event in pairs:
        if of_run != of_event:
            raise InvalidRecord("run", field, f"must be its event's, {of_event!r}")


class EncodedAcceptance(NamedTuple):
    """The encoded rows of an acceptance."""

    event: Encoded
    record: RunRecord
    row: Encoded
    snapshot: Encoded
    item: Encoded | None

    @classmethod
    def encode(
        cls,
        event: EventRecord,
        run: RunRecord,
        item: TranscriptItem | None,
        resolution: str | None,
    ) -> EncodedAcceptance:
        """Check and encode what `RunLedger.accept` takes."""
        snapshot = snapshot_row(run.agent_snapshot)
        row = run_row(run, snapshot_digest=snapshot["digest"], resolution=resolution)
        return cls(
            event=event_row(event, run_id=run.run_id),
            record=run,
            row=row,
            snapshot=snapshot,
            item=None if item is None else item_row(item),
        )

    def run(self, connection: Connection) -> Acceptance:
        """Write them, unless the event is known.

        Raises:
            EventConflict: It is known with other content.
        """
        accepted = self._run_at_once(connection)
        if accepted is not None:
            return accepted
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

    def _run_at_once(self, connection: Connection) -> Acceptance | None:
        """Write them in one statement; `None` if that was not enough, and nothing is written."""
        statement = connection.accept_at_once
        if statement is None or self.item is None:
            return None
        values = values_at_once(
            event=self.event, run=self.row, item=self.item, snapshot=self.snapshot
        )
        row = connection.first(statement, values)
        if row is None:
            return None
        latest: int | None = row[0]
        run = self.record if latest is None else _at(self.record, latest)
        return Acceptance(run, duplicate=False)

    def _write(self, connection: Connection) -> RunRecord:
        if self.item is None:
            latest = latest_position(connection, self.row["conversation_key"])
        else:
            latest = write_item(connection, self.item)
        runs.write_snapshot(connection, self.snapshot)
        connection.run(runs.INSERT, {**self.row, "latest_cursor_position": latest})
        return self.record if latest is None else _at(self.record, latest)


class EncodedReplay(NamedTuple):
    """The encoded rows of a run that replays another."""

    record: RunRecord
    row: Encoded
    snapshot: Encoded

    @classmethod
    def encode(cls, run: RunRecord, resolution: str | None) -> EncodedReplay:
        """Check and encode what `RunLedger.replay` takes."""
        snapshot = snapshot_row(run.agent_snapshot)
        row = run_row(run, snapshot_digest=snapshot["digest"], resolution=resolution)
        return cls(run, {**row, "latest_cursor_position": run.latest_cursor_position}, snapshot)

    def run(self, connection: Connection) -> RunRecord:
        """Write them."""
        runs.write_snapshot(connection, self.snapshot)
        connection.run(runs.INSERT, self.row)
        return self.record


_NO_CHANGES: Encoded = {
    "to_reserved": None,
    "to_first_delta": None,
    "to_usage": None,
    "to_course": None,
}

_RUN_FIELDS = tuple(field.name for field in fields(RunRecord))
_run_values = attrgetter(*_RUN_FIELDS)


def _at(run: RunRecord, latest: int) -> RunRecord:
    # dataclasses.replace, at a third of its price: every message of a conversation pays it.
    values = dict(zip(_RUN_FIELDS, _run_values(run), strict=True))
    values["latest_cursor_position"] = latest
    return RunRecord(**values)


class EncodedFacts(NamedTuple):
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
    def encode(cls, facts: RunFacts) -> EncodedFacts:
        """Check and encode facts."""
        _check_of_run(facts)
        run_id = facts.run_id
        check_ids("run facts", run_id=run_id, host_incarnation=facts.host_incarnation)
        check_integers("run facts", reserved_sequence=facts.reserved_sequence)
        check_text("run facts", "course", facts.course)
        return cls(
            owner={"of_run": run_id, "of_incarnation": facts.host_incarnation},
            changes={
                "to_reserved": facts.reserved_sequence,
                "to_first_delta": optional_microseconds(
                    "run facts", "first_delta_at", facts.first_delta_at
                ),
                "to_usage": usage_text(facts.usage),
                "to_course": facts.course,
            },
            results=[result_row(result) for result in facts.results],
            items=[item_row(item) for item in facts.items],
            entries=[entry_row(entry) for entry in facts.entries],
            checkpoints=[checkpoint_row(checkpoint) for checkpoint in facts.checkpoints],
            dropped=_dropped(facts),
            warnings=_checked(facts.warnings),
            size=_size(facts),
        )

    def work(self) -> Work[None]:
        """Return the work that writes them, as `record` does."""
        others = (self.items, self.entries, self.checkpoints, self.dropped, self.warnings)
        if len(self.results) == 1 and self.changes == _NO_CHANGES and not any(others):
            return runs.write_result(self.owner, self.results[0])
        return self.record

    def record(self, connection: Connection) -> None:
        """Write them, if the run takes them.

        Raises:
            RunNotWritable: It does not.
        """
        # Whatever is written first checks the run.
        if self.changes != _NO_CHANGES:
            runs.change(connection, self.owner, self.changes)
        elif not self.results:
            runs.check_writable(connection, self.owner)
        if self.results:
            runs.write_results(connection, self.owner, self.results)
        self._write_others(connection)

    def write_last(self, connection: Connection) -> None:
        """Write those that have rows of their own, of a run that was ended just now."""
        connection.run_many(runs.INSERT_RESULT, self.results)
        self._write_others(connection)

    def _write_others(self, connection: Connection) -> None:
        if self.items:
            write_items(connection, self.items)
        if self.entries:
            write_entries(connection, self.entries)
        if self.checkpoints:
            connection.run_many(runs.INSERT_CHECKPOINT, self.checkpoints)
        if self.dropped:
            connection.run_many(runs.DROP_CHECKPOINT, self.dropped)
        if self.warnings:
            runs.add_warnings(connection, self.owner["of_run"], self.warnings)


def _check_of_run(facts: RunFacts) -> None:
    for kind in (facts.results, facts.entries, facts.checkpoints):
        for fact in kind:
            if fact.run_id != facts.run_id:
                rule = f"must be the facts' own, {facts.run_id!r}"
                raise InvalidRecord(type(fact).__name__, "run_id", rule)


def _dropped(facts: RunFacts) -> Sequence[Encoded]:
    for message_id in facts.dropped_checkpoints:
        check_ids("run facts", dropped_checkpoints=message_id)
    return [
        {"of_run": facts.run_id, "of_message": message_id}
        for message_id in facts.dropped_checkpoints
    ]


def _checked(warnings: tuple[RunWarning, ...]) -> tuple[RunWarning, ...]:
    # They are encoded in the writer, together with those already stored.
    warnings_text(warnings)
    return warnings


def _size(facts: RunFacts) -> int:
    size = sum([len(result.payload) for result in facts.results])
    if facts.items:
        size += sum(len(item.content) + len(item.text or "") for item in facts.items)
    if facts.entries:
        size += sum(len(entry.payload) for entry in facts.entries)
    if facts.checkpoints:
        size += sum(len(point.text) + len(point.reasoning) for point in facts.checkpoints)
    if facts.course:
        size += len(facts.course)
    return size


class EncodedEnd(NamedTuple):
    """The encoded end of a run, with its last facts."""

    values: Encoded
    facts: EncodedFacts

    @classmethod
    def encode(cls, end: RunEnd, facts: RunFacts) -> EncodedEnd:
        """Check and encode the end of a run and its last facts."""
        if not end.status.is_terminal:
            raise InvalidRecord("run end", "status", f"must be terminal, is {end.status.name}")
        if facts.run_id != end.run_id:
            raise InvalidRecord("run facts", "run_id", f"must be the end's, {end.run_id!r}")
        check_ids("run end", host_incarnation=end.host_incarnation)
        check_integers("run end", last_sequence=end.last_sequence)
        last_facts = replace(facts, warnings=facts.warnings + end.warnings)
        encoded = EncodedFacts.encode(last_facts)
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
            "to_course": facts.course,
        }
        return cls(values, encoded)

    def run(self, connection: Connection) -> bool:
        """Write them, unless the run has ended or is another host's; return whether."""
        if connection.run(runs.FINISH, self.values) == 0:
            return False
        self.facts.write_last(connection)
        connection.run(runs.DROP_CHECKPOINTS, self.values)
        return True
