"""The event log: every event that came in, and every durable fact of a run beside it.

Two kinds of rows, kept apart: events, unique by (workspace, bot, source, event id), and entries,
facts of a run such as tool calls, artifacts, actions and errors, in the order they were stored.
Both are only ever appended to. The one exception: an event that was logged without a run gets
the run that a redelivery of it started (`RunLedger.accept`).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Collection, Sequence
from typing import Protocol

from stores.records import EventRecord, LogEntry, Page


class EventLog(Protocol):
    """Appends and reads events and entries.

    What a method that returns a future stores is handed to the journal before the method
    returns, in the order of the calls; a future that is done means that it is durable. Futures
    may be ignored and their waiters cancelled: the work is done all the same.
    """

    def append(self, event: EventRecord) -> Future[bool]:
        """Log an event that starts no run.

        Args:
            event: The event; its `run_id` must be `None`.

        Returns:
            True if it was logged now, False if it was known already with the same digest.

        Raises:
            InvalidRecord: At once; a field cannot be stored.
            EventConflict: The same event was logged with another digest.
        """

    def append_entries(self, entries: Sequence[LogEntry]) -> Future[None]:
        """Log facts that belong to no `RunFacts`, such as deliveries after a run has ended.

        All or none of them are stored, in the order given.

        Raises:
            InvalidRecord: At once; a field cannot be stored.
            ConstraintViolated: One of the runs is unknown.
        """

    async def get(self, workspace: str, bot: str, source: str, event_id: str) -> EventRecord | None:
        """Return the event with this key, or `None`."""

    async def get_for_run(self, run_id: str) -> EventRecord | None:
        """Return the event that started this run; `None` if there is no such run or event."""

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
        """Return a page of the events of a conversation, in the order in which they were logged.

        A page is stable while events arrive, as pages of the transcript are: going on from
        `next_cursor`, nothing is seen twice and nothing that was there is left out.

        Args:
            conversation_key: The conversation; an unknown one is an empty one, and so is the
                empty key, which events of no conversation have.
            types: Only events of these types, at most 1,000; none for all.
            after: Only later events; the `next_cursor` of a page that is read oldest first.
            before: Only earlier events; the `next_cursor` of a page that is read newest first.
            limit: How many events at most, from 1 to 10,000.
            newest_first: The order.
            most_bytes: How many bytes the envelopes of a page may have, with 8 more for each. The
                page ends before the event that is too much; the first one is given in any case.
                `None` for no bound.

        Raises:
            InvalidRecord: Too many types, or a limit that is none.
        """

    async def entries(
        self, run_id: str, *, after_position: int = 0, limit: int = 1_000
    ) -> Sequence[LogEntry]:
        """Return entries of a run, oldest first, from after a position; empty without any."""
