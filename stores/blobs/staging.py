"""Taking bytes in: a temporary file for each upload.

What flows where::

    caller (event loop)                 a thread of the store
    async for chunk in chunks
      gather a block   ---append--->    digest it, write it
      gather the next  (meanwhile)
      wait, hand over  ---append--->    ...
    check size and digest

The file is locked for as long as its writer lives, so that whoever finds one without a lock knows
that its writer is dead, even one that was killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Lock

from stores.blobs.files import FOLDER, make_private_folder, opened
from stores.blobs.store import MEBIBYTE, Declared, StagedBlob
from stores.blobs.threads import BlobThreads
from stores.errors import ContentMismatch, ContentTooLarge, StoreClosed, StoreUnavailable

# One hand-over to a thread, 150 microseconds, for each MiB.
_BLOCK_BYTES = MEBIBYTE

_SUFFIX = ".part"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_WRITE = "write a blob's temporary file"


class Staging:
    """A folder of temporary files."""

    def __init__(self, folder: Path, *, threads: BlobThreads) -> None:
        """Take the folder, which is made when it is needed."""
        self._folder = folder
        self._threads = threads

    @asynccontextmanager
    async def stage(
        self, chunks: AsyncIterable[bytes], declared: Declared
    ) -> AsyncIterator[StagedBlob]:
        """Take bytes in; see `BlobStore.stage`."""
        file = _PartFile(self._folder)
        try:
            await self._threads.run(_WRITE, file.open)
            size = await self._fill(file, chunks, declared)
            digest = file.digest
            _check(declared, size, digest)
            yield StagedBlob(digest, size, file.path)
        finally:
            await self._discard(file)

    async def _discard(self, file: _PartFile) -> None:
        try:
            discarding = self._threads.start("remove a temporary file", file.discard)
        except StoreClosed:
            # The store closes over an upload: no thread is left to do it.
            file.discard()
        else:
            # Done even if this wait is cancelled in its turn.
            await asyncio.shield(discarding)

    async def _fill(self, file: _PartFile, chunks: AsyncIterable[bytes], declared: Declared) -> int:
        size = 0
        block = bytearray()
        writing = self._append(file, b"")
        try:
            async for chunk in chunks:
                size += len(chunk)
                _check_so_far(declared, size)
                block += chunk
                if len(block) >= _BLOCK_BYTES:
                    await writing
                    writing = self._append(file, block)
                    block = bytearray()
            await writing
            writing = self._append(file, block)
        finally:
            # Waited for even when the bytes stop coming: its error may be the reason to tell.
            await writing
        return size

    def _append(self, file: _PartFile, block: bytes | bytearray) -> asyncio.Future[None]:
        return self._threads.start(_WRITE, partial(file.append, block))

    async def sweep(self) -> int:
        """Delete what dead writers left; see `BlobStore.sweep`."""
        return await self._threads.run("sweep temporary files", self._sweep)

    def _sweep(self) -> int:
        if not self._folder.is_dir():
            return 0
        with os.scandir(self._folder) as entries:
            found = [entry.name for entry in entries if entry.name.endswith(_SUFFIX)]
        return sum(_delete_if_dead(self._folder / name) for name in found)


class _PartFile:
    """A temporary file, used by one thread at a time.

    Discarding it is final, even where that overtakes what was started before.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / (secrets.token_hex(16) + _SUFFIX)
        self._lock = Lock()
        self._file: int | None = None
        self._discarded = False
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> bytes:
        return self._hash.digest()

    def open(self) -> None:
        with self._lock:
            if self._discarded:
                return
            make_private_folder(self.path.parent)
            with opened(os.open(self.path.parent, FOLDER)) as folder:
                self._file = _create_locked(folder, self.path.name)

    def append(self, block: bytes | bytearray) -> None:
        with self._lock:
            if self._file is None:
                return
            self._hash.update(block)
            rest = memoryview(block)
            while rest:
                rest = rest[os.write(self._file, rest) :]

    def discard(self) -> None:
        with self._lock:
            self._discarded = True
            if self._file is None:
                return
            # It has gone elsewhere if it was published.
            _unlink_if_same(self._file, self.path)
            os.close(self._file)
            self._file = None


def _create_locked(folder: int, name: str) -> int:
    # Between making and locking it a sweep may take it for a dead writer's: then it has no name.
    for _ in range(10):
        file = os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)
    raise StoreUnavailable("temporary files disappear as soon as they are made")


def _unlink_if_same(file: int, path: Path) -> bool:
    try:
        if os.path.samestat(os.fstat(file), path.lstat()):
            path.unlink()
            return True
    except FileNotFoundError:
        pass
    return False


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _delete_if_dead(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # Gone meanwhile, or nothing that we made.
        return False
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return False
        return _try_lock(file) and _unlink_if_same(file, path)
    finally:
        os.close(file)


def _check_so_far(declared: Declared, size: int) -> None:
    if size > declared.most_bytes:
        raise ContentTooLarge(declared.most_bytes)
    if declared.size_bytes is not None and size > declared.size_bytes:
        raise ContentMismatch("size_bytes", f"{declared.size_bytes}", f"at least {size}")


def _check(declared: Declared, size: int, digest: bytes) -> None:
    if declared.size_bytes is not None and size != declared.size_bytes:
        raise ContentMismatch("size_bytes", f"{declared.size_bytes}", f"{size}")
    if declared.sha256 is not None and digest != declared.sha256:
        raise ContentMismatch("sha256", declared.sha256.hex(), digest.hex())
