"""The run ledger on SQL."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Sequence
from datetime import datetime

from stores.errors import InvalidRecord
from stores.ledger import Accepting
from stores.records import (
    Acceptance,
    Checkpoint,
    EventRecord,
    Page,
    ResultRecord,
    RunEnd,
    RunFacts,
    RunNotes,
    RunQuery,
    RunRecord,
    RunStatus,
    TranscriptItem,
)
from stores.sql import runs
from stores.sql.connection import Connection, Values
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from stores.sql.rows import checkpoint_record, result_record, run_record
from stores.sql.run_facts import (
    EncodedAcceptance,
    EncodedEnd,
    EncodedFacts,
    EncodedReplay,
    check_belongs,
)
from stores.sql.run_pages import RunPages, page_of_runs
from stores.sql.values import (
    check_ids,
    check_integers,
    check_limit,
    check_text,
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
        self,
        event: EventRecord,
        run: RunRecord,
        item: TranscriptItem | None = None,
        *,
        resolution: str | None = None,
    ) -> Accepting:
        """Log an event, start its run and write its transcript item; see the protocol."""
        check_belongs(event, run)
        work = EncodedAcceptance.encode(event, run, item, resolution)
        size = len(event.envelope) + len(run.agent_snapshot)
        prepared: Future[Acceptance] = get_running_loop().create_future()
        committed = self._journal.submit(work.run, size=size, prepared=prepared)
        return Accepting(prepared, committed)

    def replay(self, run: RunRecord, *, resolution: str | None = None) -> Future[RunRecord]:
        """Start a run that replays another; see the protocol."""
        if run.replay_of is None:
            raise InvalidRecord(
                "run", "replay_of", "must be set: accept starts the run of an event"
            )
        work = EncodedReplay.encode(run, resolution)
        return self._journal.submit(work.run, size=len(run.agent_snapshot))

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
        check_ids("run", run_id=run_id, instance_id=instance_id, host_incarnation=host_incarnation)
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
        encoded = EncodedFacts.encode(facts)
        return self._journal.submit(encoded.work(), size=encoded.size)

    def finish(self, end: RunEnd, facts: RunFacts | None = None) -> Future[bool]:
        """End a run together with its last facts, and drop its checkpoints; see the protocol."""
        work = EncodedEnd.encode(end, facts or RunFacts(run_id=end.run_id))
        return self._journal.submit(work.run, size=work.facts.size)

    def amend_course(
        self, run_id: str, course: str, *, host_incarnation: str | None = None
    ) -> Future[bool]:
        """Replace how a run went; see the protocol."""
        check_ids("run", run_id=run_id, host_incarnation=host_incarnation)
        check_text("run", "course", course)
        values = {"of_run": run_id, "of_incarnation": host_incarnation, "to_course": course}
        return self._journal.submit(
            lambda connection: connection.run(runs.AMEND_COURSE, values) == 1, size=len(course)
        )

    def claim(
        self, run_id: str, from_incarnation: str, host_id: str, incarnation: str
    ) -> Future[Sequence[str]]:
        """Take over the waiting runs of a session of a host that is lost; see the protocol."""
        check_ids("run", run_id=run_id, host_incarnation=from_incarnation)
        check_ids("host", host_id=host_id, incarnation=incarnation)
        values = {
            "of_run": run_id,
            "of_incarnation": from_incarnation,
            "to_host": host_id,
            "to_incarnation": incarnation,
        }
        return self._journal.submit(lambda connection: _claim(connection, values))

    async def get(self, run_id: str) -> RunRecord | None:
        """Return a run, or `None`."""
        row = await self._readers.first(runs.SELECT, {"of_run": run_id})
        return None if row is None else run_record(row)

    async def notes(self, run_id: str) -> RunNotes | None:
        """Return what is kept of a run for whoever wants it explained, or `None`."""
        row = await self._readers.first(runs.SELECT_NOTES, {"of_run": run_id})
        return None if row is None else RunNotes(row[0], row[1])

    async def list(
        self, query: RunQuery, *, limit: int = 50, after: str | None = None
    ) -> Page[RunRecord, str]:
        """Return runs, newest first; see the protocol."""
        statement, values = self._pages.statement(query, limit=limit, after=after)
        rows = await self._readers.all(statement, values)
        return page_of_runs(rows, limit=limit)

    async def results(
        self, run_id: str, *, after_sequence: int = 0, limit: int = 1_000
    ) -> Sequence[ResultRecord]:
        """Return durable results of a run by delivered number, from after one; may be empty."""
        check_limit(limit)
        values = {"of_run": run_id, "above": after_sequence, "most": limit}
        rows = await self._readers.all(runs.SELECT_RESULTS, values)
        return [result_record(row) for row in rows]

    async def checkpoints(self, run_id: str) -> Sequence[Checkpoint]:
        """Return the checkpoints of an active run, by delivered number; may be empty."""
        rows = await self._readers.all(runs.SELECT_CHECKPOINTS, {"of_run": run_id})
        return [checkpoint_record(row) for row in rows]

    async def active_of_lost_hosts(self, now: datetime) -> Sequence[RunRecord]:
        """Return runs that have not ended and whose owner cannot end them, oldest first."""
        values = {"now": microseconds("host", "now", now)}
        rows = await self._readers.all(runs.SELECT_OF_LOST_HOSTS, values)
        return [run_record(row) for row in rows]


def _claim(connection: Connection, values: Values) -> Sequence[str]:
    session = connection.first(runs.WAITING_SESSION, values)
    if session is None:
        return ()
    waiting = connection.all(runs.WAITING_OF_SESSION, {**values, "of_session": session[0]})
    claimed = [str(row[0]) for row in waiting]
    connection.run_many(runs.CLAIM, [{**values, "of_run": each} for each in claimed])
    return claimed
