"""Writing everything of a database into a folder: see `stores.transfer`."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

import sqlalchemy as sa

from stores.blobs import BlobStore
from stores.blobs.names import BlobName
from stores.blobs.reading import stream
from stores.errors import BlobLost, TransferRefused
from stores.migrations import HEAD
from stores.sql.connection import Connection, Database
from stores.sql.opening import open_blob_store, open_database
from stores.sql.schema import find_revision
from stores.sql.tables import artifacts, blobs
from stores.sql.transfer_files import (
    BLOB_LIST,
    MANIFEST,
    UNFINISHED,
    FileSummary,
    Manifest,
    Summary,
    check_going,
    in_thread,
    make_folder,
    table_path,
    writing,
)
from stores.sql.transfer_rows import MOVED_TABLES, MovedTable
from stores.transferred import Progress, Transferred

_PAGE = 1_000
_READ_BYTES = 1024 * 1024

_SELECT_BLOBS = (
    sa.select(blobs.c.name, blobs.c.size_bytes)
    .where(
        blobs.c.name > sa.bindparam("after"),
        sa.exists().where(artifacts.c.blob_name == blobs.c.name),
    )
    .order_by(blobs.c.name)
    .limit(sa.bindparam("most"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One export."""

    database: Database
    blobs: BlobStore | None
    folder: Path
    progress: Progress

    @classmethod
    def of(cls, url: str, folder: Path, *, blobs_url: str | None, progress: Progress) -> Export:
        """Return the export of a database; nothing is opened yet."""
        database = open_database(url, synchronous="FULL")
        store = open_blob_store(blobs_url, database.engine.url)
        return cls(database=database, blobs=store, folder=folder, progress=progress)

    async def run(self) -> Transferred:
        """Do it; see `stores.transfer.export_database`."""
        try:
            with _claimed(self.folder):
                manifest = await in_thread(self._write_tables)
                await self._copy_blobs(manifest)
                manifest.write(self.folder)
            (self.folder / UNFINISHED).unlink()
        finally:
            if self.blobs is not None:
                await self.blobs.close()
        return Transferred(
            digest=manifest.digest,
            rows=manifest.rows,
            blobs=manifest.blobs.rows,
            blob_bytes=manifest.blob_bytes,
        )

    def _write_tables(self, stop: Event) -> Manifest:
        _check_schema(self.database)
        make_folder(self.folder / "tables")
        connection = self.database.connect()
        try:
            connection.begin_snapshot()
            manifest = self._write_all(connection, stop)
            connection.rollback()
        finally:
            connection.close()
        return manifest

    def _write_all(self, connection: Connection, stop: Event) -> Manifest:
        tables = {table.name: self._write_table(connection, table, stop) for table in MOVED_TABLES}
        listed, size = self._write_blob_list(connection)
        return Manifest(
            schema_revision=HEAD,
            columns={table.name: table.description() for table in MOVED_TABLES},
            tables=tables,
            counters=read_counters(connection),
            blobs=listed,
            blob_bytes=size,
        )

    def _write_table(self, connection: Connection, table: MovedTable, stop: Event) -> FileSummary:
        summary = Summary()
        with writing(table_path(self.folder, table.name)) as file:
            for lines in table.pages(connection):
                check_going(stop)
                summary.add(lines)
                file.writelines(lines)
                self.progress(f"table {table.name}", summary.rows)
        return summary.result()

    def _write_blob_list(self, connection: Connection) -> tuple[FileSummary, int]:
        summary, size, after = Summary(), 0, ""
        with writing(self.folder / BLOB_LIST) as file:
            while rows := connection.all(_SELECT_BLOBS, {"after": after, "most": _PAGE}):
                lines = [
                    json.dumps(list(row), separators=(",", ":")).encode() + b"\n" for row in rows
                ]
                summary.add(lines)
                file.writelines(lines)
                size += sum(row[1] for row in rows)
                after = rows[-1][0]
        return summary.result(), size

    async def _copy_blobs(self, manifest: Manifest) -> None:
        if manifest.blobs.rows and self.blobs is None:
            raise TransferRefused("artifacts have bytes, and no blob store was named: give its URL")
        with (self.folder / BLOB_LIST).open("rb") as listed:
            for number, line in enumerate(listed, 1):
                name, size = json.loads(line)
                await self._copy_blob(BlobName(name), size)
                self.progress("blobs", number)

    async def _copy_blob(self, name: BlobName, size: int) -> None:
        path = self.folder / "blobs" / name.path
        if await in_thread(partial(is_whole, path, name, size)):
            return
        assert self.blobs is not None  # noqa: S101 - checked before the first
        make_folder(path.parent)
        digest = hashlib.sha256()
        with writing(path) as file:
            async for block in stream(self.blobs, name, offset=0, length=size):
                digest.update(block)
                file.write(block)
            if digest.digest() != name.sha256:
                raise BlobLost(name.text, "does not have the digest that it was stored with")


def is_whole(path: Path, name: BlobName, size: int, stop: Event) -> bool:
    """Return whether a file is there and has a blob's bytes."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != size:
                return False
            while block := file.read(_READ_BYTES):
                check_going(stop)
                digest.update(block)
    except FileNotFoundError:
        return False
    return digest.digest() == name.sha256


def read_counters(connection: Connection) -> dict[str, int]:
    """Return the last number that each counting table gave."""
    return {
        table.name: connection.last_number(table.name, table.counter)
        for table in MOVED_TABLES
        if table.counter is not None
    }


def _check_schema(database: Database) -> None:
    found = find_revision(database)
    if found is None:
        raise TransferRefused("there is nothing in the database: check its URL")
    if found != HEAD:
        raise TransferRefused(
            f"the database has schema revision {found}, this version exports {HEAD}: migrate first"
        )


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    if (folder / MANIFEST).exists():
        raise TransferRefused(f"{folder} holds a finished export already: choose another folder")
    if folder.exists() and not (folder / UNFINISHED).exists() and any(folder.iterdir()):
        raise TransferRefused(f"{folder} is not empty: choose another folder")
    make_folder(folder)
    claim = os.open(folder / UNFINISHED, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(claim)
        raise TransferRefused(f"another export writes to {folder} already") from error
    try:
        yield
    finally:
        os.close(claim)
