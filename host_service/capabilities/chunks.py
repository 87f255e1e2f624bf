"""Blocks of a file as chunks that go into one message each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any


async def cut(blocks: AsyncIterator[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    """Yield the bytes of blocks in pieces of so many bytes at most.

    Leaving it ends the blocks as well, right away.
    """
    source: Any = blocks
    async with aclosing(source):
        async for block in source:
            if len(block) <= most_bytes:
                yield block
                continue
            whole = memoryview(block)
            for start in range(0, len(block), most_bytes):
                yield bytes(whole[start : start + most_bytes])
