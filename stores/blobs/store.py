"""What a blob store promises.

Bytes go in by two steps. They are *staged*: streamed into a temporary file, counted and digested
on the way, and refused when they are not what was declared. Then they are *published* under a name
that is made from their digest. In between, whoever keeps the names decides which one it is: a new
one, or one that the same bytes have already.

- Memory is constant, whatever the size: at most two blocks of an upload or a download are held.
- A blob is there whole or not at all, and never changes. What was reported as published survives
  a loss of power, as far as the store is on a disk of this machine.
- Writers of the same bytes under the same name may publish at the same time.
- A crash leaves nothing but temporary files, which `sweep` removes; those of writers that still
  live are never touched, in whatever process they are.
- Nothing outside the root is ever read or written: a path is made from a `BlobName` and nothing
  else, and symbolic links below the root are not followed.
- Work on files is done in threads of the store's own. Cancelling a waiter leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from stores.blobs.names import BlobName

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What is known of bytes before they come, and holds for them.

    Attributes:
        most_bytes: How many there may be.
        size_bytes: How many there must be, if that is known.
        sha256: Which digest they must have, if that is known.
    """

    most_bytes: int
    size_bytes: int | None = None
    sha256: bytes | None = None


@dataclass(frozen=True, slots=True)
class StagedBlob:
    """Bytes that came in whole and were checked, in a temporary file.

    Attributes:
        sha256: Their digest.
        size_bytes: How many they are.
        path: The temporary file; it goes away with the context that gave it.
    """

    sha256: bytes
    size_bytes: int
    path: Path


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob that a store holds.

    Attributes:
        name: Its name.
        size_bytes: How many bytes it has.
        modified_at: When it was published last.
    """

    name: BlobName
    size_bytes: int
    modified_at: datetime


class BlobStore(Protocol):
    """Keeps bytes under names.

    Every method may raise `StoreUnavailable`: the store cannot be reached, read or written now;
    and `StoreClosed`.

    Attributes:
        block_bytes: How much one step of a download should read.
    """

    block_bytes: int

    def stage(
        self, chunks: AsyncIterable[bytes], declared: Declared
    ) -> AbstractAsyncContextManager[StagedBlob]:
        """Take bytes in, for as long as the context lasts.

        Errors of `chunks` come through. However the context ends, what was not published is gone.

        Raises:
            ContentTooLarge: There are more than declared, told as soon as one too many came.
            ContentMismatch: Their number or digest is not the declared one.
        """

    async def publish(self, staged: StagedBlob, name: BlobName) -> None:
        """Make sure that staged bytes are stored under a name; nothing is written if they are.

        Raises:
            ValueError: The name is for other bytes.
        """

    async def read(self, name: BlobName, offset: int, length: int) -> bytes:
        """Return bytes of a blob, all that were asked for.

        Raises:
            BlobLost: The store does not have it, or it ends before.
        """

    async def find(self, name: BlobName) -> StoredBlob | None:
        """Return what is known of a blob, or `None` if the store does not have it."""

    async def delete(self, name: BlobName) -> None:
        """Delete a blob. One that is not there is no error."""

    def scan(self) -> AsyncIterator[StoredBlob]:
        """Give all blobs, in no order; what is no blob of ours is passed over."""

    async def sweep(self) -> int:
        """Delete the temporary files that dead writers left, and return how many."""

    async def close(self) -> None:
        """Finish what is under way. May be called again."""


def check_name(staged: StagedBlob, name: BlobName) -> None:
    """Check that a name is for these bytes.

    Raises:
        ValueError: It is not.
    """
    if name.sha256 != staged.sha256:
        raise ValueError(f"the name {name.text} is not for bytes with digest {staged.sha256.hex()}")
