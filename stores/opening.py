"""Opening the stores of a database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from stores.opened import Stores

Synchronous = Literal["FULL", "NORMAL"]


def utc_now() -> datetime:
    """Return the time now, in UTC."""
    return datetime.now(UTC)


async def open_stores(
    url: str,
    *,
    synchronous: Synchronous = "FULL",
    clock: Callable[[], datetime] = utc_now,
) -> Stores:
    """Open the stores of a database, bringing its schema up to date first.

    Must be called in the event loop in which the stores will be used.

    Args:
        url: `sqlite:///path/to/file` or `postgresql+psycopg://user@host/name`.
        synchronous: SQLite only. `FULL` waits for the disk at every commit, so that what was
            reported survives a loss of power. `NORMAL` does not: a loss of power may undo the
            last commits, a crash of the process still undoes none.
        clock: Tells the time for what the catalogue stamps by itself.

    Raises:
        InvalidDatabaseUrl: The URL has neither form.
        SchemaTooNew: A newer version wrote the database.
        StoreUnavailable: The database cannot be opened.
    """
    # The SQL side costs a third of a second to import; who only needs records does not pay it.
    from stores.sql.opening import open_sql_stores

    return await open_sql_stores(url, synchronous=synchronous, clock=clock)
