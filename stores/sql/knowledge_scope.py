"""What a search looks at: the blocks of a knowledge base at one moment, and which chunks count.

Chunks stand in arrays, in the order of their numbers: those of the first block, then those of the
second. What is at an index of one array is at the same index of every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import sqlalchemy as sa

from stores.knowledge_filters import Filters
from stores.sql.connection import Connection
from stores.sql.knowledge_blocks import BLOCK_BITS, BLOCK_SIZE
from stores.sql.knowledge_writing import FIND_BASE
from stores.sql.tables import knowledge_blocks, knowledge_metadata, knowledge_ranges

if TYPE_CHECKING:
    import numpy.typing as npt

# Scores are rounded to so many: what is the same but for the order in which it was added up is then
# equal, and in the order in which it was stored.
SCORE_DIGITS = 9

_stored = knowledge_blocks.c
_SELECT_BLOCKS = (
    sa.select(_stored.number, _stored.vector_revision, _stored.visible, _stored.lengths)
    .where(_stored.base == sa.bindparam("of_number"))
    .order_by(_stored.number)
)
_SELECT_FILTERED = (
    sa.select(knowledge_ranges.c.first, knowledge_ranges.c.count)
    .select_from(knowledge_metadata)
    .join(knowledge_ranges, knowledge_ranges.c.version == knowledge_metadata.c.version)
    .where(
        knowledge_metadata.c.base == sa.bindparam("of_number"),
        knowledge_metadata.c.digest == sa.bindparam("of_digest"),
    )
)


@dataclass(frozen=True, slots=True)
class Scope:
    """A knowledge base, as one search sees it.

    Attributes:
        base: Its number.
        blocks: The numbers of its blocks, ascending.
        vector_revisions: Of each block, how often its vectors changed.
        visible: Whether a place has a chunk that is searched.
        lengths: How many terms that has, plus 1.
        chosen: Whether it passes the filters as well.
    """

    base: int
    blocks: npt.NDArray[np.int64]
    vector_revisions: Sequence[int]
    visible: npt.NDArray[np.bool_]
    lengths: npt.NDArray[np.uint32]
    chosen: npt.NDArray[np.bool_]

    @classmethod
    def find(cls, connection: Connection, knowledge_base_id: str, filters: Filters) -> Scope | None:
        """Return what there is of a knowledge base; `None` if there is nothing."""
        base = connection.first(FIND_BASE, {"of_base": knowledge_base_id})
        rows = [] if base is None else connection.all_bytes(_SELECT_BLOCKS, {"of_number": base[0]})
        if base is None or not rows:
            return None
        numbers = np.array([row[0] for row in rows], np.int64)
        visible = np.frombuffer(b"".join(row[2] for row in rows), np.bool_)
        chosen = visible
        for alternatives in filters:
            chosen = chosen & _passing(connection, base[0], alternatives, numbers)
        return cls(
            base=base[0],
            blocks=numbers,
            vector_revisions=[row[1] for row in rows],
            visible=visible,
            lengths=np.frombuffer(b"".join(row[3] for row in rows), "<u4"),
            chosen=chosen,
        )

    def numbers(self, indexes: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Return the numbers of the chunks at some indexes."""
        firsts: npt.NDArray[np.int64] = self.blocks[indexes >> BLOCK_BITS] << BLOCK_BITS
        return firsts + (indexes & (BLOCK_SIZE - 1))


def _passing(
    connection: Connection,
    base: int,
    alternatives: Sequence[bytes],
    blocks: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Return which places are of versions that have one of some values."""
    passing = np.zeros(len(blocks) * BLOCK_SIZE, np.bool_)
    offsets = {block: at * BLOCK_SIZE for at, block in enumerate(blocks.tolist())}
    for digest in alternatives:
        values = {"of_number": base, "of_digest": digest}
        for first, count in connection.all(_SELECT_FILTERED, values):
            # A dropped version's block may be gone.
            offset = offsets.get(first >> BLOCK_BITS)
            if offset is not None:
                begin = offset + (first & (BLOCK_SIZE - 1))
                passing[begin : begin + count] = True
    return passing


@dataclass(frozen=True, slots=True)
class Scored:
    """Chunks that a search found, by number, and their scores."""

    numbers: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]

    @classmethod
    def best(cls, found: Sequence[Scored], limit: int) -> list[tuple[int, float]]:
        """Return the best of all, best first; of equal ones that with the lowest number first."""
        if not found:
            return []
        numbers = np.concatenate([each.numbers for each in found])
        scores = np.concatenate([each.scores for each in found])
        order = np.lexsort((numbers, -scores))[:limit]
        return list(zip(numbers[order].tolist(), scores[order].tolist(), strict=True))


def at_least(
    scores: npt.NDArray[np.float64] | npt.NDArray[np.float32], limit: int, margin: float = 0.0
) -> npt.NDArray[np.intp]:
    """Return the indexes of the best scores: so many, and those equal or nearly to the last."""
    if len(scores) <= limit:
        return np.arange(len(scores))
    last = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    return np.flatnonzero(scores >= last - margin)
