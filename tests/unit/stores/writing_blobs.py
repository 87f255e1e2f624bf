"""Writes blobs until it is killed, and says of each that it is stored: `writing_blobs.py ROOT`."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from stores.blobs import BlobName, Declared
from stores.blobs.folder import FolderBlobs


async def chunks(number: int) -> AsyncIterator[bytes]:
    """Give some MiB that follow from the number."""
    generator = random.Random(number)
    for _ in range(30):
        yield generator.randbytes(100_000)


async def write(blobs: FolderBlobs, first: int) -> None:
    """Write one blob after the other, and say of each that it is stored."""
    for number in range(first, 1_000_000, 2):
        async with blobs.stage(chunks(number), Declared(most_bytes=2**30)) as staged:
            name = BlobName.new(staged.sha256)
            await blobs.publish(staged, name)
        sys.stdout.write(f"{name.text}\n")
        sys.stdout.flush()


async def main() -> None:
    """Write by two writers at once."""
    blobs = FolderBlobs(Path(sys.argv[1]))
    await asyncio.gather(write(blobs, 0), write(blobs, 1))


asyncio.run(main())
