"""What was seen of a database and its blob store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseReport:
    """What was seen of a database that has this version's schema.

    Attributes:
        engine: The engine's name and version.
        faults: What is broken in its files, in the engine's words.
        clock_ahead_seconds: How far the server's clock is before this machine's, or behind it when
            negative; `None` for an engine without a clock of its own.
        newest_ahead_seconds: How far in the future the newest run was made, by this machine's
            clock; 0 when it was not.
        wal_bytes: The size of SQLite's write-ahead log; `None` for other engines.
        living_hosts: The ids of the hosts that run on it.
        lost_hosts: The ids of the hosts that ended without saying so, and still have runs that did
            not end.
        secret_key_ids: The ids of the keys that its secrets are encrypted with.
        awaiting_actions: How many actions wait for somebody's approval.
        oldest_awaiting_seconds: How long the oldest of them has waited; 0 without any.
        vectors: What compares vectors inside the database; `None` where nothing does.
        without_vectors: What would change that; `None` where something does.
        most_passages: How many passages the largest knowledge base has, at most.
    """

    engine: str
    faults: tuple[str, ...]
    clock_ahead_seconds: float | None
    newest_ahead_seconds: float
    wal_bytes: int | None
    living_hosts: tuple[str, ...]
    lost_hosts: tuple[str, ...]
    secret_key_ids: tuple[str, ...]
    awaiting_actions: int = 0
    oldest_awaiting_seconds: float = 0.0
    vectors: str | None = None
    without_vectors: str | None = None
    most_passages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobsReport:
    """What was seen of a blob store.

    Attributes:
        artifacts: How many artifacts there are.
        looked_at: How many blobs of the newest artifacts were looked for.
        lost: The names of those that are not there, or not in their size.
        size_bytes: How many bytes all blobs have.
    """

    artifacts: int
    looked_at: int
    lost: tuple[str, ...]
    size_bytes: int
