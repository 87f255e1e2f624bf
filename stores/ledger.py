"""The run ledger: runs, their durable results, checkpoints, warnings and reserved numbers.

A run's status only moves forward and never leaves a terminal one; (run, sequence) is unique; one
host at a time owns a run. All of it holds for several hosts on one database, because every write
is conditional and the transactions of all journals on a database are one at a time.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

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


@dataclass(frozen=True, slots=True)
class Accepting:
    """An acceptance under way.

    Attributes:
        prepared: Done with what the acceptance will be, once it is written and before it is
            durable. Who begins something by it must undo it if `committed` fails.
        committed: Done once the acceptance is durable.
    """

    prepared: Future[Acceptance]
    committed: Future[Acceptance]

    def __await__(self) -> Generator[Any, None, Acceptance]:
        """Wait until it is durable."""
        return self.committed.__await__()


class RunLedger(Protocol):
    """Writes and reads runs.

    What a method that returns a future stores is handed to the journal before the method
    returns, in the order of the calls; a future that is done means that it is durable. Futures
    may be ignored and their waiters cancelled: the work is done all the same. An exception that
    nobody took from an ignored future is logged once. Every writing method raises
    `InvalidRecord` at once for a field that cannot be stored, and its future may fail with
    `StoreUnavailable`.
    """

    def accept(
        self,
        event: EventRecord,
        run: RunRecord,
        item: TranscriptItem | None = None,
        *,
        resolution: str | None = None,
    ) -> Accepting:
        """Log an event, start its run and write its transcript item, in one transaction.

        The answer comes twice: while the commit is under way, so that the runner's stream may
        be opened meanwhile, and when it is durable, before which nothing may be shown.

        - The event is new: all three are stored.
        - It was logged before without a run: the run is attached to it, and the item stored.
        - It has a run already: that run is returned as a duplicate and nothing is written.

        Args:
            event: The event; the run's id is stored with it.
            run: Its run, of the same workspace, bot, source and event id.
            item: The event's own item; `None` if it is none that a conversation shows.
            resolution: As in `RunNotes`.

        Raises:
            EventConflict: The same event is stored with another digest.
            ConstraintViolated: The run id or the item's id is taken.
        """

    def replay(self, run: RunRecord, *, resolution: str | None = None) -> Future[RunRecord]:
        """Start a run that replays another: it names an event, and is not the run of that event.

        A redelivery of the event still finds the run that the event started, and the conversation
        gets no item. The newest position before the event is the one in the record: a replay
        takes place where its original did.

        Args:
            run: The run; `replay_of` is set.
            resolution: As in `RunNotes`.

        Raises:
            InvalidRecord: At once; `replay_of` is not set.
            ConstraintViolated: The run id is taken.
        """

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
        """Move a run forward to `QUEUED` or `RUNNING`: a run of its own, steered into none.

        Args:
            run_id: The run.
            status: The new status; a terminal one is `finish`'s.
            at: When; becomes the time of that status.
            instance_id: The instance that has the run from now on; `None` leaves it.
            deadline: When the run will be cut off; `None` leaves it.
            reserved_sequence: As in `RunFacts`.
            host_incarnation: As in `RunFacts`.

        Returns:
            False, with nothing written, if the run is unknown, stands at this status or beyond
            it, or belongs to another host.
        """

    def record(self, facts: RunFacts) -> Future[None]:
        """Store facts of an active run, all or none.

        Raises:
            RunNotWritable: The run is unknown, has ended, or belongs to another host.
            ConstraintViolated: One of the delivered numbers or item ids is taken.
        """

    def finish(self, end: RunEnd, facts: RunFacts | None = None) -> Future[bool]:
        """End a run together with its last facts, and drop its checkpoints.

        Returns:
            False, with nothing written, if the run is unknown, has ended already, or belongs to
            another host.

        Raises:
            ConstraintViolated: One of the delivered numbers or item ids is taken.
        """

    def amend_course(
        self, run_id: str, course: str, *, host_incarnation: str | None = None
    ) -> Future[bool]:
        """Replace how a run went, whether it has ended or not; see `RunNotes`.

        Returns:
            False, with nothing written, if the run is unknown or belongs to another host.
        """

    def claim(
        self, run_id: str, from_incarnation: str, host_id: str, incarnation: str
    ) -> Future[Sequence[str]]:
        """Take over a waiting run (`ACCEPTED` or `QUEUED`) of a host that is lost.

        With it go all runs of its session that wait on that host: on two hosts they would not stay
        in their order. Replays are left alone.

        Returns:
            The ids of the runs that were taken over, oldest first, for one claimant only; empty if
            the run no longer waits or no longer belongs to `from_incarnation`.
        """

    async def get(self, run_id: str) -> RunRecord | None:
        """Return a run, or `None`."""

    async def notes(self, run_id: str) -> RunNotes | None:
        """Return what is kept of a run for whoever wants it explained; `None` for no such run."""

    async def list(
        self, query: RunQuery, *, limit: int = 50, after: str | None = None
    ) -> Page[RunRecord, str]:
        """Return runs, newest first by time of creation, then by id.

        Stable while runs arrive: going on from `next_cursor`, nothing is seen twice and nothing
        that was there is left out.

        Args:
            query: Which runs.
            limit: How many at most, from 1 to 10,000.
            after: The `next_cursor` of the page before, made by the same query.

        Raises:
            InvalidRecord: `after` is no cursor.
        """

    async def results(
        self, run_id: str, *, after_sequence: int = 0, limit: int = 1_000
    ) -> Sequence[ResultRecord]:
        """Return durable results of a run by delivered number, from after one; may be empty."""

    async def checkpoints(self, run_id: str) -> Sequence[Checkpoint]:
        """Return the checkpoints of an active run, by delivered number; may be empty."""

    async def active_of_lost_hosts(self, now: datetime) -> Sequence[RunRecord]:
        """Return runs that have not ended and whose owner cannot end them, oldest first.

        An owner is lost when its host is not registered, was started anew, or let its lease run
        out before `now`.
        """
