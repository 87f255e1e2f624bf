"""Reading a blob from one end to the other, a block ahead of who takes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from stores.blobs.names import BlobName
from stores.blobs.store import BlobStore


async def stream(
    blobs: BlobStore, name: BlobName, *, offset: int, length: int
) -> AsyncIterator[bytes]:
    """Give bytes of a blob, a block at a time.

    Nothing is open between two blocks, so that whoever stops in the middle leaves nothing behind.

    Raises:
        BlobLost: The store does not have it, or it ends before.
    """
    end = offset + length

    def start() -> asyncio.Task[bytes]:
        size = min(blobs.block_bytes, end - offset)
        return asyncio.create_task(blobs.read(name, offset, size))

    ahead = start() if offset < end else None
    try:
        while ahead is not None:
            block = await ahead
            offset += len(block)
            ahead = start() if offset < end else None
            yield block
    finally:
        if ahead is not None:
            ahead.cancel()
            ahead.add_done_callback(_forget)


def _forget(read: asyncio.Task[bytes]) -> None:
    # Nobody waits for it any more: what became of it is not told either.
    if not read.cancelled():
        read.exception()
