"""Streams a large blob in and out, and tells by how many KiB memory grew: `... URL MIB`."""

import asyncio
import hashlib
import resource
import sys
from collections.abc import AsyncIterator

from stores.blobs import BlobName, BlobStore, Declared, open_blobs
from stores.blobs.reading import stream

MEBIBYTE = 1024 * 1024


async def chunks(mebibytes: int) -> AsyncIterator[bytes]:
    """Give so many MiB in pieces of 64 KiB, no two of which are the same object."""
    for number in range(mebibytes * 16):
        yield number.to_bytes(4, "big") * 16_384


async def there_and_back(blobs: BlobStore, mebibytes: int) -> None:
    """Store and read a blob, and check that it is the same."""
    async with blobs.stage(chunks(mebibytes), Declared(most_bytes=2**40)) as staged:
        name, size = BlobName.new(staged.sha256), staged.size_bytes
        await blobs.publish(staged, name)
    digest = hashlib.sha256()
    async for chunk in stream(blobs, name, offset=0, length=size):
        digest.update(chunk)
    assert digest.digest() == name.sha256
    assert size == mebibytes * MEBIBYTE


def peak() -> int:
    """Return the most memory that this process ever had, in KiB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most // 1024 if sys.platform == "darwin" else most


async def main() -> None:
    """Measure, after a small one that loads what is needed."""
    blobs = open_blobs(sys.argv[1])
    await there_and_back(blobs, 1)
    before = peak()
    await there_and_back(blobs, int(sys.argv[2]))
    sys.stdout.write(f"{peak() - before}\n")
    await blobs.close()


asyncio.run(main())
