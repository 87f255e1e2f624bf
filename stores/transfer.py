"""Moving everything out of a database and into another one, of either engine.

An export is a folder (mode 0700, files 0600: it holds what users wrote)::

    manifest.json         written last, so that an export without it is not whole
    tables/NAME.jsonl     a table: one JSON array a row, ordered by the primary key
    blobs.jsonl           the blobs that artifacts refer to: [name, size], ordered by name
    blobs/ab/NAME         their bytes, under the names that the tables have

In a row, values stand in the order of the manifest's columns. By a column's type they are: `int` a
whole number of up to 64 bits; `text` a string in UTF-8; `bytes` a string, base64 (RFC 4648, with
padding); `bool`; and null. Times are microseconds since 1970 in UTC. What an engine derives by
itself, the index for searching, is not there and made anew.

The manifest has the schema revision, the counters' last numbers, and for each file its number of
rows, its size and its SHA-256; `digest` is one over all of these, so that two databases with the
same content have the same digest, whatever their engines.

- An export sees one moment of the database, and a running host is not held up by it.
- An import is one transaction: all tables are there or none. Its rows are read again before the
  commit, and must have the digests of the manifest. Nothing may run on the database meanwhile.
- Both may be interrupted, or die, at any moment, and be started again. Blobs that are there whole
  are not copied again; tables are begun anew.
- Memory is constant, whatever the size.
"""

from __future__ import annotations

from pathlib import Path

from stores.transferred import Progress, Transferred


def tell_nobody(what: str, done: int) -> None:
    """Take note of no progress."""


async def export_database(
    url: str, folder: Path, *, blobs_url: str | None = None, progress: Progress = tell_nobody
) -> Transferred:
    """Write everything into a folder, which is made; an interrupted export there is gone on with.

    Raises:
        TransferRefused: The folder holds something else, or the database has another schema.
        BlobLost: The bytes of an artifact are not in the blob store.
        StoreUnavailable: The database or the blob store cannot be read.
    """
    from stores.sql.exporting import Export

    return await Export.of(url, folder, blobs_url=blobs_url, progress=progress).run()


async def import_database(
    url: str,
    folder: Path,
    *,
    blobs_url: str | None = None,
    replace: bool = False,
    progress: Progress = tell_nobody,
) -> Transferred:
    """Take everything from an export into a database, which gets its schema first.

    Args:
        url: The database.
        folder: The export.
        blobs_url: Where the bytes of artifacts go, as in `open_stores`.
        replace: Delete what the database holds; without it, it must be empty.
        progress: Is told how far it is.

    Raises:
        TransferRefused: The database is not empty, or a host runs on it, or the export is not whole
            or of another schema.
        TransferDamaged: A file is not what was exported.
        StoreUnavailable: The database or the blob store cannot be written.
    """
    from stores.sql.importing import Import

    taken = Import.of(url, folder, blobs_url=blobs_url, replace=replace, progress=progress)
    return await taken.run()
