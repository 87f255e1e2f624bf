"""What a user of the stores may see of the journal, through which every write goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class JournalStatistics:
    """Counters since the stores were opened, and what waits now.

    Attributes:
        submitted: Pieces of work handed in.
        committed: Pieces whose transaction was committed.
        refused: Pieces that raised `Refused`; they cost their neighbours nothing.
        failed: Pieces that failed otherwise.
        transactions: Transactions committed.
        retried_alone: Transactions that failed and whose pieces were then run one by one.
        largest: The most pieces that one transaction held.
        waiting: Pieces handed in whose outcome is not yet known.
        waiting_bytes: About how many bytes these hold.
        commit_seconds: Time spent in transactions, in all.
    """

    submitted: int
    committed: int
    refused: int
    failed: int
    transactions: int
    retried_alone: int
    largest: int
    waiting: int
    waiting_bytes: int
    commit_seconds: float


class Journal(Protocol):
    """The queue in front of the one writer."""

    async def room(self) -> None:
        """Wait while more waits than should; returns at once otherwise.

        Writing methods never wait. Whoever writes much awaits this in between; past four times
        the bound, writing methods raise `StoreOverloaded`.
        """

    async def flush(self) -> None:
        """Wait until the outcome of everything handed in so far is known."""

    def statistics(self) -> JournalStatistics:
        """Return the counters."""
