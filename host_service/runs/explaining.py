"""Why a run came out as it did: all that is kept of it, put together.

Nothing is decided again. What was decided was written down when it was: the choice of the agent
with the acceptance, rights and times with the run's course, calls in the audit, results in the
ledger. Of an active run, what is not written yet comes from memory.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from runmesh.v1 import result_pb2

from host_service.agents.agent import Agent
from host_service.agents.kept import keep, withheld_from
from host_service.errors import NotFound
from host_service.registry.schemas import ConfigSchemas
from host_service.runs.advice import advice_for
from host_service.runs.choice import Choice, read_choice
from host_service.runs.course import Course, read_course
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.said import in_short
from stores import Stores
from stores.audit import AuditOutcome, AuditQuery, AuditRecord
from stores.records import EventRecord, ResultRecord, RunQuery, RunRecord

Item = TypeVar("Item")

# What is shown of long lists: the beginning, and the end, where a failure is.
_SHOWN = 500
_READ_AT_ONCE = 256
_ROWS_AT_ONCE = 1_000
_MOST_REPLAYS = 100


@dataclass(slots=True)
class Ends(Generic[Item]):
    """The first and the last of many, in their order.

    Attributes:
        first: The first 500.
        last: The last 500 of those behind them.
        left_out: How many between them are not kept.
    """

    first: list[Item] = field(default_factory=list)
    last: deque[Item] = field(default_factory=lambda: deque(maxlen=_SHOWN))
    left_out: int = 0

    def add(self, item: Item) -> None:
        """Take the next one."""
        if len(self.first) < _SHOWN:
            self.first.append(item)
            return
        self.left_out += len(self.last) == _SHOWN
        self.last.append(item)

    @property
    def items(self) -> Sequence[Item]:
        """Those that are kept."""
        return [*self.first, *self.last]


@dataclass(slots=True)
class CallTotal:
    """All calls of one RPC.

    Attributes:
        rpc: What was called.
        count: How often.
        not_done: How many were refused or failed.
        seconds: How long they took, all together.
    """

    rpc: str
    count: int = 0
    not_done: int = 0
    seconds: float = 0.0

    def add(self, row: AuditRecord) -> None:
        """Count a row in."""
        self.count += row.count
        self.not_done += row.count if row.outcome is not AuditOutcome.DONE else 0
        self.seconds += row.duration_seconds


@dataclass(frozen=True, slots=True)
class Said:
    """One durable result, in short.

    Attributes:
        kind: Which it is.
        first_sequence: The first delivered number it covers.
        sequence: Its delivered number.
        at: When it was delivered.
        size_bytes: Its size.
        summary: What it says, in short.
    """

    kind: str
    first_sequence: int
    sequence: int
    at: datetime
    size_bytes: int
    summary: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a run's time, by the names of the contract."""

    name: str
    duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All that is known of a run.

    Attributes:
        run: The run as it is now.
        event: What arrived; None: past retention.
        choice: How it came to its agent; None: not kept.
        agent: The agent as it was, without the values of secret fields.
        withheld: The names of these.
        course: Its rights and times; None: not frozen, or lost with its host.
        calls: Its calls of HostAPI, oldest first.
        totals: All of them by RPC, what took longest first.
        said: Its durable results.
        text_characters: The text of its completed messages.
        stretches: Where the time went.
        advice: What to do next.
        replayed_by: Ids of runs that replay it.
    """

    run: RunRecord
    event: EventRecord | None
    choice: Choice | None
    agent: Agent
    withheld: Sequence[str]
    course: Course | None
    calls: Ends[AuditRecord]
    totals: Sequence[CallTotal]
    said: Ends[Said]
    text_characters: int
    stretches: Sequence[Stretch]
    advice: str
    replayed_by: Sequence[str]


class Explaining:
    """Explains runs.

    Args:
        stores: What is kept of them.
        orchestrator: Knows the active ones.
        schemas: Know which fields of a configuration are secret.
    """

    def __init__(
        self, *, stores: Stores, orchestrator: Orchestrator, schemas: ConfigSchemas
    ) -> None:
        self._stores = stores
        self._orchestrator = orchestrator
        self._schemas = schemas

    async def explain(self, run_id: str) -> Explanation:
        """Return all that is known of a run.

        Raises:
            NotFound: There is no such run.
        """
        active = self._orchestrator.active.get(run_id)
        notes = await self._stores.ledger.notes(run_id)
        if notes is None:
            raise NotFound("run", run_id)
        calls, totals = await self._calls(run_id)
        said, characters = await self._said(run_id)
        replays = await self._stores.ledger.list(RunQuery(replay_of=run_id), limit=_MOST_REPLAYS)
        event = await self._stores.events.get_for_run(run_id)
        # Read last: what has ended by now is told with its end.
        run = await self._orchestrator.get(run_id)
        if run is None:
            raise NotFound("run", run_id)
        course = read_course(notes.course)
        if active is not None:
            course = active.course
        elif run.status.is_terminal and course is not None and course.last_word_at is None:
            # It ended between the two looks.
            again = await self._stores.ledger.notes(run_id)
            course = read_course(again.course) if again is not None else course
        agent, withheld = self._agent(run)
        return Explanation(
            run=run,
            event=event,
            choice=read_choice(notes.resolution),
            agent=agent,
            withheld=withheld,
            course=course,
            calls=calls,
            totals=totals,
            said=said,
            text_characters=characters,
            stretches=stretches_of(run, course or Course()),
            advice=advice_for(run),
            replayed_by=[each.run_id for each in replays.items],
        )

    def _agent(self, run: RunRecord) -> tuple[Agent, Sequence[str]]:
        kept = run.agent_snapshot
        if withheld_from(kept) is None:
            # From before values were withheld.
            whole = Agent.from_document(kept.decode(), revision=run.agent_revision)
            kept = keep(whole, self._schemas.of(run.runner_id))
        agent = Agent.from_document(kept.decode(), revision=run.agent_revision)
        return agent, withheld_from(kept) or ()

    async def _calls(self, run_id: str) -> tuple[Ends[AuditRecord], Sequence[CallTotal]]:
        totals: defaultdict[str, CallTotal] = defaultdict(lambda: CallTotal(""))
        # The audit is read from its end: what comes first are the last calls.
        backwards: Ends[AuditRecord] = Ends()
        async for row in self._rows(run_id):
            backwards.add(row)
            total = totals[row.rpc]
            total.rpc = row.rpc
            total.add(row)
        forwards = Ends(first=list(reversed(backwards.items)), left_out=backwards.left_out)
        return forwards, sorted(totals.values(), key=lambda each: (-each.seconds, each.rpc))

    async def _rows(self, run_id: str) -> AsyncIterator[AuditRecord]:
        query, cursor = AuditQuery(run_id=run_id), None
        while True:
            page = await self._stores.audit.page(query, limit=_ROWS_AT_ONCE, after=cursor)
            for row in page.items:
                yield row
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _said(self, run_id: str) -> tuple[Ends[Said], int]:
        said: Ends[Said] = Ends()
        characters = last = 0
        async for record in self._results(run_id):
            result = result_pb2.RunResult.FromString(record.payload)
            said.add(_said(result, record.kind, record.at, len(record.payload)))
            characters += _characters(result)
            last = record.sequence
        active = self._orchestrator.active.get(run_id)
        for result in list(active.delivery.uncommitted) if active is not None else ():
            if result.sequence > last:
                kind = result.WhichOneof("payload") or ""
                at = result.timestamp.ToDatetime(UTC)
                said.add(_said(result, kind, at, result.ByteSize()))
                characters += _characters(result)
        return said, characters

    async def _results(self, run_id: str) -> AsyncIterator[ResultRecord]:
        after = 0
        while True:
            page = await self._stores.ledger.results(
                run_id, after_sequence=after, limit=_READ_AT_ONCE
            )
            for record in page:
                yield record
            if len(page) < _READ_AT_ONCE:
                return
            after = page[-1].sequence


def _said(result: result_pb2.RunResult, kind: str, at: datetime, size: int) -> Said:
    return Said(
        kind=kind,
        first_sequence=result.first_sequence,
        sequence=result.sequence,
        at=at,
        size_bytes=size,
        summary=in_short(result),
    )


def _characters(result: result_pb2.RunResult) -> int:
    if not result.HasField("message_completed"):
        return 0
    return sum(len(part.text) for part in result.message_completed.message.parts)


def stretches_of(run: RunRecord, course: Course) -> Sequence[Stretch]:
    """Return where the time of an ended run went, and of an active one up to its last step.

    The stretches follow each other without a gap; those that are not known are part of the next.
    """
    waited = run.queued_at is not None
    steps: list[tuple[str, datetime | None]] = [
        ("accept", run.queued_at),
        ("turn", course.turn_at),
        (("instance" if course.turn_at else "waiting") if waited else "accept", course.instance_at),
        ("start" if course.instance_at else "waiting", run.started_at),
    ]
    if run.started_at is None:
        steps.append(("waiting", run.ended_at))
    else:
        steps += [
            ("first_result", course.first_result_at),
            ("runner", course.last_word_at),
            ("end" if course.last_word_at else "runner", run.ended_at),
            ("store", course.stored_at),
        ]
    found, since = [], run.created_at
    for name, until in steps:
        # Clocks may be set back: nothing takes less than no time.
        if until is not None and until > since:
            found.append(Stretch(name, until - since))
            since = until
    return found
