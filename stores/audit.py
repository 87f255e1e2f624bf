"""The audit: who did what to which resource, with what outcome.

Rows are only ever appended. Nobody waits for one: `append` returns at once, and the rows of one
turn of the event loop go to the journal as one piece of work, into the transactions of the others.

A flood of like refusals becomes one row with a count. A refusal is held for up to a second; those
that are like it (all but time and duration) are counted in meanwhile, and then one row is written.
1,024 kinds of refusals are held at most: one more, and all that are held are written early. What a
process held when it was killed is lost, up to one second of refusals; `flush`, `page` and closing
the stores write it.

While the database is away up to 10,000 rows wait in memory; those beyond are lost, which is logged
and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Protocol

from stores.records import Page


class AuditOutcome(IntEnum):
    """How a call ended. Only refusals are counted together."""

    DONE = 1
    REFUSED = 2
    FAILED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One call, or several like ones that were refused.

    Attributes:
        at: When; the first of several.
        rpc: What was called.
        outcome: How it ended.
        run_id: The run whose token it carried, if any.
        runner_id: The runner of that run.
        caller: The API key's id or whoever else called, if it was no runner.
        resource: What it was about, or empty.
        scope: Within what, or empty.
        reason: Why it was refused or failed, or empty.
        duration_seconds: How long it took; of several, all together. Kept in microseconds.
        count: How many calls it stands for.
        position: Its place in the audit; 0 until stored.
    """

    at: datetime
    rpc: str
    outcome: AuditOutcome
    run_id: str | None = None
    runner_id: str | None = None
    caller: str | None = None
    resource: str = ""
    scope: str = ""
    reason: str = ""
    duration_seconds: float = 0.0
    count: int = 1
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Which rows to read; what is `None` does not narrow.

    Attributes:
        run_id: Rows of this run.
        outcome: Rows with this outcome.
        after: Rows of this time or later.
        before: Rows of before this time.
    """

    run_id: str | None = None
    outcome: AuditOutcome | None = None
    after: datetime | None = None
    before: datetime | None = None


class Audit(Protocol):
    """Appends to the audit and reads it."""

    def append(self, record: AuditRecord) -> None:
        """Write a row, some time soon.

        What a caller sent must not keep it out of the audit: U+0000 and lone surrogates in its
        texts are replaced by U+FFFD, and a text over 255 characters is cut and ends in `…`.

        Raises:
            InvalidRecord: At once; the time has no zone.
        """

    async def flush(self) -> None:
        """Write what is held, and wait until the outcome of all rows so far is known."""

    async def page(
        self, query: AuditQuery, *, limit: int = 50, after: str | None = None
    ) -> Page[AuditRecord, str]:
        """Return rows, newest first by time, then by position.

        Everything appended before is written first. Going on from `next_cursor`, nothing is seen
        twice and nothing that was there is left out.

        Args:
            query: Which rows.
            limit: How many at most, from 1 to 10,000.
            after: The `next_cursor` of the page before, made by the same query.

        Raises:
            InvalidRecord: `after` is no cursor.
        """

    def lost(self) -> int:
        """Return how many calls could not be recorded since the stores were opened."""
