"""Opening the stores of a database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from stores.limits import StoreLimits
from stores.opened import Stores
from stores.secret_keys import SecretKeys

Synchronous = Literal["FULL", "NORMAL"]


def utc_now() -> datetime:
    """Return the time now, in UTC."""
    return datetime.now(UTC)


async def open_stores(
    url: str,
    *,
    synchronous: Synchronous = "FULL",
    clock: Callable[[], datetime] = utc_now,
    blobs_url: str | None = None,
    secret_keys: SecretKeys | None = None,
    limits: StoreLimits | None = None,
) -> Stores:
    """Open the stores of a database, bringing its schema up to date first.

    Must be called in the event loop in which the stores will be used.

    Args:
        url: `sqlite:///path/to/file` or `postgresql+psycopg://user@host/name`.
        synchronous: SQLite only. `FULL` waits for the disk at every commit, so that what was
            reported survives a loss of power. `NORMAL` does not: a loss of power may undo the
            last commits, a crash of the process still undoes none.
        clock: Tells the time for what catalogue, state and storage stamp by themselves, and for
            what expires.
        blobs_url: Where the bytes of artifacts are, `file:///path/to/folder` or
            `s3://bucket/prefix`; see `stores.blobs.open_blobs`. By default the folder `blobs`
            beside a SQLite file. For PostgreSQL there is none: without a URL, no bytes.
        secret_keys: What secrets are encrypted with; without them secrets are neither written nor
            read.
        limits: How large single values may be.

    Raises:
        InvalidDatabaseUrl: The URL has neither form.
        InvalidBlobsUrl: The blob store's URL has neither form.
        SchemaTooNew: A newer version wrote the database.
        StoreUnavailable: The database cannot be opened.
    """
    # The SQL side costs a third of a second to import; who only needs records does not pay it.
    from stores.sql.opening import open_sql_stores

    return await open_sql_stores(
        url,
        synchronous=synchronous,
        clock=clock,
        blobs_url=blobs_url,
        secret_keys=secret_keys or SecretKeys(),
        limits=limits or StoreLimits(),
    )
