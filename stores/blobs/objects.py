"""Blobs in an object store: S3 and what speaks like it, by `obstore`.

Bytes are staged in a folder of this machine, so that the object store is only ever given whole
and checked ones, and none that it has already. An object appears at once when its upload is
complete; what a crash leaves of one that was sent in parts is not visible, and goes away by the
bucket's rule for incomplete uploads.

A download is one request a block, and not one long answer: a reader may take its time.

Obstore is called in threads of ours. Its own coroutines are completed from a thread that Python
does not know of, and abort the process when that comes as the interpreter ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from stores.blobs.names import BlobName
from stores.blobs.staging import Staging
from stores.blobs.store import MEBIBYTE, Declared, StagedBlob, StoredBlob, check_name
from stores.blobs.threads import BlobThreads
from stores.errors import BlobLost, InvalidRecord, StoreUnavailable

T = TypeVar("T")

# They wait for the network, and not for the disk.
_THREADS = 16

# An upload holds at most so many parts in memory.
_PART_BYTES = 5 * MEBIBYTE
_PARTS_AT_ONCE = 2


class ObjectBlobs:
    """Implements `BlobStore` in an object store."""

    # A request takes some 20 ms, however little it asks for.
    block_bytes = 4 * MEBIBYTE

    def __init__(self, objects: ObjectStore, *, staging_folder: Path) -> None:
        """Take the objects, and the folder for temporary files, made when it is needed."""
        self._objects = objects
        self._threads = BlobThreads(_THREADS)
        self._staging = Staging(staging_folder, threads=self._threads)

    def stage(
        self, chunks: AsyncIterable[bytes], declared: Declared
    ) -> AbstractAsyncContextManager[StagedBlob]:
        """Take bytes in; see the protocol."""
        return self._staging.stage(chunks, declared)

    async def publish(self, staged: StagedBlob, name: BlobName) -> None:
        """Make sure that staged bytes are stored under a name; see the protocol."""
        check_name(staged, name)
        await self._run("write a blob", partial(self._publish, staged, name))

    def _publish(self, staged: StagedBlob, name: BlobName) -> None:
        found = self._find(name)
        if found is None or found.size_bytes != staged.size_bytes:
            obstore.put(
                self._objects,
                name.path,
                staged.path,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )

    async def read(self, name: BlobName, offset: int, length: int) -> bytes:
        """Return bytes of a blob; see the protocol."""
        if length == 0:
            return b""
        return await self._run("read a blob", partial(self._read, name, offset, length))

    def _read(self, name: BlobName, offset: int, length: int) -> bytes:
        try:
            data = obstore.get_range(self._objects, name.path, start=offset, length=length)
        except FileNotFoundError as error:
            raise BlobLost(name.text, "is not in the object store") from error
        except BaseError as error:
            # A range behind the end is refused with the error that a broken network has as well.
            found = self._find(name)
            if found is None or found.size_bytes > offset:
                raise
            raise BlobLost(name.text, f"has {found.size_bytes} bytes only") from error
        if len(data) != length:
            raise BlobLost(name.text, f"has {offset + len(data)} bytes only")
        return bytes(data)

    async def find(self, name: BlobName) -> StoredBlob | None:
        """Return what is known of a blob; see the protocol."""
        return await self._run("look for a blob", partial(self._find, name))

    def _find(self, name: BlobName) -> StoredBlob | None:
        try:
            found = obstore.head(self._objects, name.path)
        except FileNotFoundError:
            return None
        return StoredBlob(name, found["size"], found["last_modified"])

    async def delete(self, name: BlobName) -> None:
        """Delete a blob; see the protocol."""
        await self._run("delete a blob", partial(self._delete, name))

    def _delete(self, name: BlobName) -> None:
        with suppress(FileNotFoundError):
            obstore.delete(self._objects, name.path)

    async def scan(self) -> AsyncIterator[StoredBlob]:
        """Give all blobs; see the protocol."""
        pages = await self._run("list blobs", self._pages)
        while (page := await self._run("list blobs", partial(next, pages, None))) is not None:
            for blob in page:
                yield blob

    def _pages(self) -> Iterator[Sequence[StoredBlob]]:
        for page in obstore.list(self._objects):
            yield [blob for meta in page if (blob := _blob(meta)) is not None]

    async def sweep(self) -> int:
        """Delete what dead writers left; see the protocol."""
        return await self._staging.sweep()

    async def close(self) -> None:
        """Finish what is under way; see the protocol."""
        await self._threads.close()

    async def _run(self, purpose: str, call: Callable[[], T]) -> T:
        return await self._threads.run(purpose, partial(_told, purpose, call))


def _blob(meta: obstore.ObjectMeta) -> StoredBlob | None:
    try:
        name = BlobName(meta["path"].rpartition("/")[2])
    except InvalidRecord:
        return None
    if meta["path"] != name.path:
        return None
    return StoredBlob(name, meta["size"], meta["last_modified"])


def _told(purpose: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except BaseError as error:
        # The further lines repeat it as Rust has it, addresses and all.
        reason = str(error).partition("\n")[0]
        raise StoreUnavailable(f"cannot {purpose} in the object store: {reason}") from error
