"""Blocks: where chunks have their places, and what searches know of all of them.

A chunk's number is its block's, times 1,024, and its place in the block. Places are given one after
the other and never twice. A block's row has two arrays with an item for each place:

- `visible`: a byte, 1 for a chunk of a version that is searched;
- `lengths`: 32 bits, how many terms the chunk has, plus 1; 0 for a place that is not taken or whose
  chunk was dropped. A staged chunk has a length and is not visible.

So a document is shown, or dropped, by changing the rows of the blocks it is in, however many terms
it has. The postings of dropped chunks are `garbage`: searches pass over them, and
`stores.sql.knowledge_collecting` sweeps them out.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from stores.sql.connection import Connection
from stores.sql.tables import knowledge_blocks

BLOCK_BITS = 10
BLOCK_SIZE = 1 << BLOCK_BITS
LENGTH_BYTES = 4

_stored = knowledge_blocks.c
_is_block = _stored.number == sa.bindparam("of_block")

# Half of what was put into it is garbage.
IS_SWEEPABLE = sa.and_(_stored.garbage > 0, _stored.garbage * 2 >= _stored.used)

_SELECT_OPEN = (
    sa.select(_stored.number, _stored.used)
    .where(_stored.base == sa.bindparam("of_base"))
    .order_by(_stored.number.desc())
    .limit(1)
)
_INSERT = (
    sa.insert(knowledge_blocks)
    .values(
        {
            name: sa.bindparam(name)
            for name in ("base", "used", "garbage", "vector_revision", "visible", "lengths")
        }
    )
    .returning(_stored.number)
)
_SELECT = sa.select(_stored.used, _stored.garbage, _stored.visible, _stored.lengths).where(
    _is_block
)
_UPDATE = (
    sa.update(knowledge_blocks)
    .where(_is_block)
    .values({f"{name}": sa.bindparam(f"to_{name}") for name in ("used", "garbage", "visible")})
    .values(lengths=sa.bindparam("to_lengths"))
)
_CHANGE_VECTORS = (
    sa.update(knowledge_blocks).where(_is_block).values(vector_revision=_stored.vector_revision + 1)
)


class Places(NamedTuple):
    """Places that follow each other in one block.

    Attributes:
        block: The block's number.
        first: The first place.
        size: How many.
    """

    block: int
    first: int
    size: int

    @property
    def number(self) -> int:
        """The number of the first chunk."""
        return (self.block << BLOCK_BITS) + self.first

    @classmethod
    def of(cls, number: int, size: int) -> Places:
        """Return the places of chunks whose numbers follow each other."""
        return cls(number >> BLOCK_BITS, number & (BLOCK_SIZE - 1), size)


def block_of(number: int) -> int:
    """Return the block that a chunk is in."""
    return number >> BLOCK_BITS


def take_places(connection: Connection, base: int, lengths: Sequence[int]) -> list[Places]:
    """Give places to new chunks of a base, which are not visible yet.

    Args:
        connection: A write transaction.
        base: The base's number.
        lengths: How many terms each chunk has.
    """
    taken: list[Places] = []
    done = 0
    while done < len(lengths):
        block, used = _open_block(connection, base)
        count = min(BLOCK_SIZE - used, len(lengths) - done)
        _fill(connection, block, lengths[done : done + count])
        taken.append(Places(block, used, count))
        done += count
    return taken


def _open_block(connection: Connection, base: int) -> tuple[int, int]:
    found = connection.first(_SELECT_OPEN, {"of_base": base})
    if found is not None and found[1] < BLOCK_SIZE:
        return found[0], found[1]
    row = {
        "base": base,
        "used": 0,
        "garbage": 0,
        "vector_revision": 0,
        "visible": bytes(BLOCK_SIZE),
        "lengths": bytes(BLOCK_SIZE * LENGTH_BYTES),
    }
    made = connection.first(_INSERT, row)
    assert made is not None  # noqa: S101 - an insertion returns its row
    return made[0], 0


class Block:
    """A block's row, to be changed in a write transaction."""

    def __init__(self, connection: Connection, number: int) -> None:
        """Read it."""
        row = connection.first(_SELECT, {"of_block": number})
        assert row is not None  # noqa: S101 - a block goes after all its chunks
        self._connection = connection
        self._number = number
        self.used: int = row[0]
        self.garbage: int = row[1]
        self.visible = bytearray(row[2])
        self.lengths = bytearray(row[3])

    def set_lengths(self, first: int, packed: bytes) -> None:
        """Set lengths, packed, from a place on."""
        at = first * LENGTH_BYTES
        self.lengths[at : at + len(packed)] = packed

    def write(self) -> None:
        """Write it."""
        self._connection.run(
            _UPDATE,
            {
                "of_block": self._number,
                "to_used": self.used,
                "to_garbage": self.garbage,
                "to_visible": bytes(self.visible),
                "to_lengths": bytes(self.lengths),
            },
        )


def _fill(connection: Connection, number: int, lengths: Sequence[int]) -> None:
    block = Block(connection, number)
    packed = struct.pack(f"<{len(lengths)}I", *(length + 1 for length in lengths))
    block.set_lengths(block.used, packed)
    block.used += len(lengths)
    block.write()


def show_and_drop(
    connection: Connection, *, shown: Iterable[Places] = (), dropped: Iterable[Places] = ()
) -> None:
    """Let some chunks be found, and others not any more."""
    changes: defaultdict[int, list[tuple[Places, bool]]] = defaultdict(list)
    for places in dropped:
        changes[places.block].append((places, False))
    for places in shown:
        changes[places.block].append((places, True))
    for number, of_block in changes.items():
        block = Block(connection, number)
        for places, is_shown in of_block:
            end = places.first + places.size
            block.visible[places.first : end] = bytes([is_shown]) * places.size
            if not is_shown:
                block.set_lengths(places.first, bytes(places.size * LENGTH_BYTES))
                block.garbage += places.size
        block.write()


def note_vectors(connection: Connection, blocks: Iterable[int]) -> None:
    """Note that vectors of these blocks changed."""
    connection.run_many(_CHANGE_VECTORS, [{"of_block": number} for number in sorted(set(blocks))])
