"""The event log: every event that came in, and every durable fact of a run beside it.

Two kinds of rows, kept apart: events, unique by (workspace, bot, source, event id), and entries,
facts of a run such as tool calls, artifacts, actions and errors, in the order they were stored.
Both are only ever appended to. The one exception: an event that was logged without a run gets
the run that a redelivery of it started (`RunLedger.accept`).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import Protocol

from stores.records import EventRecord, LogEntry


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

    async def entries(
        self, run_id: str, *, after_position: int = 0, limit: int = 1_000
    ) -> Sequence[LogEntry]:
        """Return entries of a run, oldest first, from after a position; empty without any."""
