"""Taking everything of an export into a database: see `stores.transfer`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO

import sqlalchemy as sa

from stores.blobs import BlobStore
from stores.blobs.names import BlobName
from stores.blobs.store import Declared
from stores.errors import Refused, StoreError, TransferDamaged, TransferRefused
from stores.migrations import HEAD
from stores.sql.connection import Connection, Database
from stores.sql.exporting import read_counters
from stores.sql.opening import open_blob_store, open_database
from stores.sql.schema import bring_up_to_date
from stores.sql.tables import blobs, hosts, transcript_items
from stores.sql.transcript import index_items
from stores.sql.transfer_files import (
    BLOB_LIST,
    Manifest,
    Stopped,
    Summary,
    check_going,
    in_thread,
    table_path,
)
from stores.sql.transfer_rows import MOVED_TABLES, MovedTable
from stores.sql.values import microseconds
from stores.transferred import Progress, Transferred

_READ_BYTES = 1024 * 1024
# Lines may be megabytes long: few at a time, and on SQLite nothing is gained by more.
_ROWS = 64
# Longer than any row, so that a file without line ends is not taken into memory.
_LONGEST_LINE = 256 * 1024 * 1024

_SELECT_LIVING_HOST = sa.select(hosts.c.host_id).where(hosts.c.lease_until > sa.bindparam("now"))
_SELECT_BLOB_NAMES = (
    sa.select(blobs.c.name)
    .where(blobs.c.name > sa.bindparam("after"))
    .order_by(blobs.c.name)
    .limit(sa.bindparam("most"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import."""

    database: Database
    blobs: BlobStore | None
    folder: Path
    replace: bool
    progress: Progress

    @classmethod
    def of(
        cls, url: str, folder: Path, *, blobs_url: str | None, replace: bool, progress: Progress
    ) -> Import:
        """Return the import into a database; nothing is opened yet."""
        database = open_database(url, synchronous="FULL")
        return cls(
            database=database,
            blobs=open_blob_store(blobs_url, database.engine.url),
            folder=folder,
            replace=replace,
            progress=progress,
        )

    async def run(self) -> Transferred:
        """Do it; see `stores.transfer.import_database`."""
        try:
            manifest = await asyncio.to_thread(Manifest.read, self.folder)
            _check_manifest(manifest)
            await in_thread(self._prepare)
            await self._copy_blobs(manifest)
            replaced = await in_thread(partial(self._write, manifest))
            await self._delete_blobs(replaced)
        finally:
            if self.blobs is not None:
                await self.blobs.close()
        return Transferred(
            digest=manifest.digest,
            rows=manifest.rows,
            blobs=manifest.blobs.rows,
            blob_bytes=manifest.blob_bytes,
        )

    def _prepare(self, stop: Event) -> None:
        check_going(stop)
        bring_up_to_date(self.database)
        connection = self.database.connect()
        try:
            self._check_target(connection)
        finally:
            connection.close()

    def _check_target(self, connection: Connection) -> None:
        now = microseconds("clock", "now", datetime.now(UTC))
        living = connection.first(_SELECT_LIVING_HOST, {"now": now})
        if living is not None:
            raise TransferRefused(
                f"host {living[0]} runs on the database, or did a moment ago: stop it, and wait "
                "a minute if it was killed"
            )
        for table in MOVED_TABLES:
            if not self.replace and connection.first(table.select, {"most": 1}) is not None:
                raise TransferRefused(
                    f"the database is not empty, there are {table.name}: import into a new one, "
                    "or replace what is there"
                )

    def _write(self, manifest: Manifest, stop: Event) -> list[str]:
        connection = self.database.connect()
        try:
            connection.begin()
            # A host may have started since.
            self._check_target(connection)
            replaced = list(_blob_names(connection)) if self.replace else []
            self._fill(connection, manifest, stop)
            self._verify(connection, manifest, stop)
            connection.commit()
        except (StoreError, OSError, Stopped):
            raise
        except Exception as error:
            raise self.database.meaning(error) from error
        finally:
            connection.close()
        kept = set(_listed(self.folder)) if replaced else set()
        return [name for name in replaced if name not in kept]

    def _fill(self, connection: Connection, manifest: Manifest, stop: Event) -> None:
        if self.replace:
            for table in reversed(MOVED_TABLES):
                connection.run(sa.delete(table.table), {})
        for table in MOVED_TABLES:
            self._fill_table(connection, table, manifest, stop)
        for table in MOVED_TABLES:
            if table.counter is not None:
                connection.set_last_number(
                    table.name, table.counter, int(manifest.counters[table.name])
                )

    def _fill_table(
        self, connection: Connection, table: MovedTable, manifest: Manifest, stop: Event
    ) -> None:
        path = table_path(self.folder, table.name)
        summary = Summary()
        with _open(path) as file:
            while lines := list(islice(iter(partial(file.readline, _LONGEST_LINE), b""), _ROWS)):
                check_going(stop)
                rows = [
                    _decode(table, path, at, line)
                    for at, line in enumerate(lines, summary.rows + 1)
                ]
                connection.run_many(table.insert, rows)
                if table.table is transcript_items:
                    index_items(connection, rows)
                summary.add(lines)
                self.progress(f"table {table.name}", summary.rows)
        if summary.result() != manifest.tables[table.name]:
            raise TransferDamaged(f"{path} is not what was exported: export again")

    def _verify(self, connection: Connection, manifest: Manifest, stop: Event) -> None:
        for table in MOVED_TABLES:
            summary = Summary()
            for lines in table.pages(connection):
                check_going(stop)
                summary.add(lines)
                self.progress(f"check {table.name}", summary.rows)
            if summary.result() != manifest.tables[table.name]:
                raise TransferDamaged(f"table {table.name} did not come through as it was exported")
        if read_counters(connection) != manifest.counters:
            raise TransferDamaged("the counters did not come through as they were exported")

    async def _copy_blobs(self, manifest: Manifest) -> None:
        if manifest.blobs.rows and self.blobs is None:
            raise TransferRefused("artifacts have bytes, and no blob store was named: give its URL")
        path = self.folder / BLOB_LIST
        summary = Summary()
        with _open(path) as listed:
            for line in listed:
                summary.add([line])
                name, size = _listed_blob(path, line)
                await self._copy_blob(name, size)
                self.progress("blobs", summary.rows)
        if summary.result() != manifest.blobs:
            raise TransferDamaged(f"{path} is not what was exported: export again")

    async def _copy_blob(self, name: BlobName, size: int) -> None:
        assert self.blobs is not None  # noqa: S101 - checked before the first
        found = await self.blobs.find(name)
        if found is not None and found.size_bytes == size:
            return
        path = self.folder / "blobs" / name.path
        declared = Declared(most_bytes=size, size_bytes=size, sha256=name.sha256)
        try:
            async with self.blobs.stage(_blocks(path), declared) as staged:
                await self.blobs.publish(staged, name)
        except FileNotFoundError as error:
            raise TransferDamaged(f"{path} is missing: export again") from error
        except Refused as error:
            raise TransferDamaged(f"{path} is not what was exported: {error}") from error

    async def _delete_blobs(self, names: list[str]) -> None:
        if self.blobs is not None:
            for name in names:
                await self.blobs.delete(BlobName(name))


async def _blocks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while block := await asyncio.to_thread(file.read, _READ_BYTES):
            yield block


def _check_manifest(manifest: Manifest) -> None:
    if manifest.schema_revision != HEAD:
        raise TransferRefused(
            f"the export has schema revision {manifest.schema_revision}, this version imports "
            f"{HEAD}: import it with the version that wrote it, then migrate"
        )
    for table in MOVED_TABLES:
        if manifest.columns.get(table.name) != table.description():
            raise TransferDamaged(f"the manifest describes table {table.name} otherwise")
        if table.name not in manifest.tables:
            raise TransferDamaged(f"the manifest lacks table {table.name}")
        if table.counter is not None and table.name not in manifest.counters:
            raise TransferDamaged(f"the manifest lacks the counter of table {table.name}")


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise TransferDamaged(f"{path} is missing: export again") from error


def _decode(table: MovedTable, path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        return table.decode(line)
    except (ValueError, RecursionError) as error:
        # What is wrong is told; what stands there belongs to users.
        what = "is no JSON" if isinstance(error, json.JSONDecodeError) else str(error)
        raise TransferDamaged(f"{path}, line {number}, {what}: export again") from error


def _listed_blob(path: Path, line: bytes) -> tuple[BlobName, int]:
    try:
        name, size = json.loads(line)
        return BlobName(name), int(size)
    except (ValueError, TypeError, StoreError) as error:
        raise TransferDamaged(f"{path} is not what was exported: export again") from error


def _listed(folder: Path) -> Iterator[str]:
    with _open(folder / BLOB_LIST) as listed:
        for line in listed:
            yield _listed_blob(folder / BLOB_LIST, line)[0].text


def _blob_names(connection: Connection) -> Iterator[str]:
    after = ""
    while rows := connection.all(_SELECT_BLOB_NAMES, {"after": after, "most": 1_000}):
        yield from (row[0] for row in rows)
        after = rows[-1][0]
