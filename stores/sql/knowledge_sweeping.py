"""Sweeping postings of dropped chunks out of blocks, some hundred terms at a time.

A block is swept when half of what was ever put into it is garbage, so that less than half of what a
block has room for is, and each posting is written at most twice. A full block of which nothing is
left goes whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from stores.sql.connection import Connection
from stores.sql.knowledge_blocks import BLOCK_SIZE, IS_SWEEPABLE, Block
from stores.sql.tables import knowledge_blocks, knowledge_postings

_postings = knowledge_postings.c
TERMS = 400

_EXISTS = sa.select(knowledge_blocks.c.number).where(
    knowledge_blocks.c.number == sa.bindparam("of_block"), IS_SWEEPABLE
)
_SELECT_FIRST = (
    sa.select(_postings.term, _postings.postings)
    .where(_postings.block == sa.bindparam("of_block"))
    .order_by(_postings.term)
    .limit(sa.bindparam("most"))
)
_SELECT_NEXT = (
    sa.select(_postings.term, _postings.postings)
    .where(_postings.block == sa.bindparam("of_block"), _postings.term > sa.bindparam("after_term"))
    .order_by(_postings.term)
    .limit(sa.bindparam("most"))
)
_is_one = sa.and_(
    _postings.block == sa.bindparam("of_block"), _postings.term == sa.bindparam("of_term")
)
_UPDATE = sa.update(knowledge_postings).where(_is_one).values(postings=sa.bindparam("to_postings"))
_DELETE = sa.delete(knowledge_postings).where(_is_one)
_DELETE_BLOCK = sa.delete(knowledge_blocks).where(
    knowledge_blocks.c.number == sa.bindparam("of_block")
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A block on its way to be swept.

    Attributes:
        block: Its number.
        places: Whether a place had a dropped chunk when it began. One that was free is not among
            them: whatever comes there meanwhile stays.
        dropped: How many places had been taken and dropped then.
        after: The last term that was swept; `None` before the first.
    """

    block: int
    places: bytes
    dropped: int
    after: int | None = None

    def go_on(self, connection: Connection) -> Sweep | None:
        """Sweep the next terms; return what is left, `None` when it is through."""
        if connection.first(_EXISTS, {"of_block": self.block}) is None:
            return None
        values = {"of_block": self.block, "most": TERMS}
        if self.after is None:
            rows = connection.all(_SELECT_FIRST, values)
        else:
            rows = connection.all(_SELECT_NEXT, {**values, "after_term": self.after})
        self._sweep(connection, [(row[0], bytes(row[1])) for row in rows])
        if len(rows) == TERMS:
            return Sweep(self.block, self.places, self.dropped, rows[-1][0])
        self._end(connection)
        return None

    def _sweep(self, connection: Connection, rows: list[tuple[int, bytes]]) -> None:
        gone = np.frombuffer(self.places, np.bool_)
        changed, emptied = [], []
        for term, postings in rows:
            pairs = np.frombuffer(postings, "<u2").reshape(-1, 2)
            left = pairs[~gone[pairs[:, 0]]]
            if not len(left):
                emptied.append({"of_block": self.block, "of_term": term})
            elif len(left) < len(pairs):
                one = {"of_block": self.block, "of_term": term, "to_postings": left.tobytes()}
                changed.append(one)
        connection.run_many(_DELETE, emptied)
        connection.run_many(_UPDATE, changed)

    def _end(self, connection: Connection) -> None:
        block = Block(connection, self.block)
        dropped = _dropped(block)
        if dropped == BLOCK_SIZE == self.dropped:
            connection.run(_DELETE_BLOCK, {"of_block": self.block})
            return
        block.garbage = min(block.garbage, dropped - self.dropped)
        block.write()


def begin_sweep(connection: Connection, number: int) -> Sweep | None:
    """Return a block as it is to be swept, if it still is."""
    if connection.first(_EXISTS, {"of_block": number}) is None:
        return None
    block = Block(connection, number)
    gone = np.frombuffer(bytes(block.lengths), "<u4") == 0
    gone[block.used :] = False
    return Sweep(number, gone.tobytes(), _dropped(block))


def _dropped(block: Block) -> int:
    lengths = np.frombuffer(bytes(block.lengths), "<u4")[: block.used]
    return int(np.count_nonzero(lengths == 0))
