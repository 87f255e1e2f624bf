"""Looking at a database and its blob store from outside: what an operator should know of them.

Nothing is changed, and a running host is not held up.
"""

from __future__ import annotations

from stores.inspected import BlobsReport, DatabaseReport


def inspect_database(url: str) -> DatabaseReport:
    """Look at a database that has this version's schema.

    Raises:
        InvalidDatabaseUrl: The URL has a form that is not known.
        StoreUnavailable: It cannot be opened.
    """
    from stores.sql.inspection import inspect_database as inspect

    return inspect(url)


async def inspect_blobs(url: str, *, blobs_url: str | None = None, most: int = 200) -> BlobsReport:
    """Look whether the blobs of the newest artifacts are there.

    Args:
        url: The database.
        blobs_url: The blob store, as in `open_stores`.
        most: How many to look for.

    Raises:
        InvalidBlobsUrl: The URL has a form that is not known.
        StoreUnavailable: The blob store cannot be reached.
    """
    from stores.sql.inspection import inspect_blobs as inspect

    return await inspect(url, blobs_url=blobs_url, most=most)
