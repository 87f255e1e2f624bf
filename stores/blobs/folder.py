"""Blobs in a folder of this machine, the default.

    root/incoming/<random>.part     temporary files
    root/ab/ab12...ef.<random>      a blob, in the shard of its first two digits

Every part of a path below the root is opened by itself, from the folder before, and without
following symbolic links: what somebody else put there leads nowhere.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from stores.blobs.files import FOLDER, opened, sync
from stores.blobs.names import BlobName
from stores.blobs.staging import Staging
from stores.blobs.store import MEBIBYTE, Declared, StagedBlob, StoredBlob, check_name
from stores.blobs.threads import BlobThreads
from stores.errors import BlobLost, InvalidRecord

_STAGING = "incoming"

# A disk gains nothing from more.
_THREADS = 4

# The root itself may be a link: that is the operator's choice.
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without waiting, should it be a pipe that somebody put there.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FolderBlobs:
    """Implements `BlobStore` in a folder."""

    block_bytes = MEBIBYTE

    def __init__(self, root: Path) -> None:
        """Take the folder, which is made at the first write."""
        self._root = root
        self._threads = BlobThreads(_THREADS)
        self._staging = Staging(root / _STAGING, threads=self._threads)

    def stage(
        self, chunks: AsyncIterable[bytes], declared: Declared
    ) -> AbstractAsyncContextManager[StagedBlob]:
        """Take bytes in; see the protocol."""
        return self._staging.stage(chunks, declared)

    async def publish(self, staged: StagedBlob, name: BlobName) -> None:
        """Make sure that staged bytes are stored under a name; see the protocol."""
        check_name(staged, name)
        await self._threads.run("write a blob", partial(self._publish, staged, name))

    def _publish(self, staged: StagedBlob, name: BlobName) -> None:
        with self._open_shard(name, make=True) as shard:
            found = _stat(shard, name)
            if found is None or found.st_size != staged.size_bytes:
                _sync_file(staged.path)
                os.rename(staged.path, name.text, dst_dir_fd=shard)
            # Even where another writer has put it: its own sync may still be under way.
            sync(shard)

    async def read(self, name: BlobName, offset: int, length: int) -> bytes:
        """Return bytes of a blob; see the protocol."""
        return await self._threads.run("read a blob", partial(self._read, name, offset, length))

    def _read(self, name: BlobName, offset: int, length: int) -> bytes:
        with self._open_blob(name) as file:
            data = os.pread(file, length, offset)
            # A signal, or a file system over a network, may make one shorter than it could be.
            while len(data) < length and (
                more := os.pread(file, length - len(data), offset + len(data))
            ):
                data += more
        if len(data) < length:
            raise BlobLost(name.text, f"has {offset + len(data)} bytes only")
        return data

    async def find(self, name: BlobName) -> StoredBlob | None:
        """Return what is known of a blob; see the protocol."""
        return await self._threads.run("look for a blob", partial(self._find, name))

    def _find(self, name: BlobName) -> StoredBlob | None:
        try:
            with self._open_shard(name) as shard:
                found = _stat(shard, name)
        except FileNotFoundError:
            return None
        return None if found is None else _stored(name, found)

    async def delete(self, name: BlobName) -> None:
        """Delete a blob; see the protocol."""
        await self._threads.run("delete a blob", partial(self._delete, name))

    def _delete(self, name: BlobName) -> None:
        with suppress(FileNotFoundError), self._open_shard(name) as shard:
            os.unlink(name.text, dir_fd=shard)

    async def scan(self) -> AsyncIterator[StoredBlob]:
        """Give all blobs; see the protocol."""
        for shard in await self._threads.run("list blobs", self._list_shards):
            for blob in await self._threads.run("list blobs", partial(self._list_shard, shard)):
                yield blob

    def _list_shards(self) -> list[str]:
        if not self._root.is_dir():
            return []
        with os.scandir(self._root) as entries:
            return sorted(entry.name for entry in entries if len(entry.name) == len("ab"))

    def _list_shard(self, shard: str) -> list[StoredBlob]:
        found = []
        with self._open_folder(shard) as folder, os.scandir(folder) as entries:
            for entry in entries:
                with suppress(InvalidRecord, FileNotFoundError):
                    name = BlobName(entry.name)
                    status = entry.stat(follow_symlinks=False)
                    if name.shard == shard and stat.S_ISREG(status.st_mode):
                        found.append(_stored(name, status))
        return found

    async def sweep(self) -> int:
        """Delete what dead writers left; see the protocol."""
        return await self._staging.sweep()

    async def close(self) -> None:
        """Finish what is under way; see the protocol."""
        await self._threads.close()

    @contextmanager
    def _open_blob(self, name: BlobName) -> Iterator[int]:
        try:
            with self._open_shard(name) as shard:
                file = os.open(name.text, _FILE, dir_fd=shard)
        except FileNotFoundError as error:
            raise BlobLost(name.text, "is not in the blob folder") from error
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise BlobLost(name.text, "lies behind a symbolic link") from error
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise BlobLost(name.text, "is no regular file")
            yield file
        finally:
            os.close(file)

    @contextmanager
    def _open_shard(self, name: BlobName, *, make: bool = False) -> Iterator[int]:
        if make:
            self._make_shard(name.shard)
        with self._open_folder(name.shard) as shard:
            yield shard

    def _make_shard(self, shard: str) -> None:
        with opened(os.open(self._root, _ROOT)) as root, suppress(FileExistsError):
            os.mkdir(shard, mode=0o700, dir_fd=root)
            sync(root)

    @contextmanager
    def _open_folder(self, name: str) -> Iterator[int]:
        with opened(os.open(self._root, _ROOT)) as root:
            folder = os.open(name, FOLDER, dir_fd=root)
        with opened(folder):
            yield folder


def _stat(shard: int, name: BlobName) -> os.stat_result | None:
    try:
        found = os.stat(name.text, dir_fd=shard, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _stored(name: BlobName, found: os.stat_result) -> StoredBlob:
    return StoredBlob(name, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))


def _sync_file(path: Path) -> None:
    with opened(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as file:
        sync(file)
