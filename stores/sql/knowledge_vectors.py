"""Comparing vectors, exactly, and keeping them in memory.

Vectors are kept block by block, as they were at a revision of the block, each divided by its
length: what is used is not read again, and a search costs one product of a matrix and a vector a
block. A product with many at once may differ in its last digits from one with few, so the best are
compared once more, each by itself and with twice the digits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import sqlalchemy as sa
from sqlalchemy.sql import ClauseElement

from stores.sql.connection import Connection
from stores.sql.knowledge_blocks import BLOCK_BITS, BLOCK_SIZE
from stores.sql.knowledge_rows import among
from stores.sql.knowledge_scope import SCORE_DIGITS, Scope, Scored, at_least
from stores.sql.tables import knowledge_vectors

if TYPE_CHECKING:
    import numpy.typing as npt

_SELECT = (
    sa.select(knowledge_vectors.c.number, knowledge_vectors.c.vector)
    .where(
        knowledge_vectors.c.number >= sa.bindparam("first"),
        knowledge_vectors.c.number < sa.bindparam("end"),
        knowledge_vectors.c.model == sa.bindparam("of_model"),
    )
    .order_by(knowledge_vectors.c.number)
)
# What a product of many may be off by, and then some.
MARGIN = 1e-4
# Equal vectors may be very many: so many are looked at again, those that were stored first.
MOST_AGAIN = 8_192


@dataclass(frozen=True, slots=True)
class _Block:
    """The vectors of a block: the places of their chunks, and a row for each."""

    revision: int
    places: npt.NDArray[np.intp]
    matrix: npt.NDArray[np.float32]

    @property
    def size(self) -> int:
        return self.matrix.nbytes + self.places.nbytes


_Key = tuple[int, str, int]


class VectorCache:
    """Vectors of blocks, those used last; for any thread."""

    def __init__(self, *, most_bytes: int) -> None:
        """Take how many bytes it may hold."""
        self._most_bytes = most_bytes
        self._held: OrderedDict[_Key, _Block] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, connection: Connection, key: _Key, revision: int) -> _Block:
        """Return the vectors of a block as a revision has them, read if they are not there.

        Args:
            connection: A snapshot that has the revision.
            key: The block, the model, and how many numbers a vector has.
            revision: The block's revision.
        """
        with self._lock:
            found = self._held.get(key)
            if found is not None and found.revision == revision:
                self._held.move_to_end(key)
                return found
        read = _read(connection, key, revision)
        with self._lock:
            self._put(key, read)
        return read

    def _put(self, key: _Key, block: _Block) -> None:
        before = self._held.pop(key, None)
        self._bytes += block.size - (0 if before is None else before.size)
        self._held[key] = block
        while self._bytes > self._most_bytes:
            _, oldest = self._held.popitem(last=False)
            self._bytes -= oldest.size


def _read(connection: Connection, key: _Key, revision: int) -> _Block:
    block, model, dimensions = key
    first = block << BLOCK_BITS
    values = {"first": first, "end": first + BLOCK_SIZE, "of_model": model}
    # Others come from a model that was changed under its id.
    rows = [row for row in connection.all_bytes(_SELECT, values) if len(row[1]) == dimensions * 4]
    places = np.array([row[0] - first for row in rows], np.intp)
    return _Block(revision, places, of_one_length([row[1] for row in rows], dimensions))


def of_one_length(vectors: Sequence[bytes], dimensions: int) -> npt.NDArray[np.float32]:
    """Return vectors as rows of a matrix, each divided by its length."""
    matrix = np.frombuffer(b"".join(vectors), "<f4").reshape(-1, dimensions)
    lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))
    divided: npt.NDArray[np.float32] = (matrix / lengths[:, None]).astype(np.float32)
    return divided


def direction(vector: bytes) -> npt.NDArray[np.float64]:
    """Return a vector divided by its length."""
    wanted = np.frombuffer(vector, "<f4").astype(np.float64)
    divided: npt.NDArray[np.float64] = wanted / np.sqrt(wanted @ wanted)
    return divided


def nearest(
    connection: Connection,
    scope: Scope,
    model: str,
    vector: bytes,
    limit: int,
    cache: VectorCache,
) -> Scored:
    """Return the nearest chunks of a knowledge base, and those as near as the last of them."""
    wanted = direction(vector)
    asked = wanted.astype(np.float32)
    found: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.float32], npt.NDArray[np.float32]]] = []
    for at, block in enumerate(scope.blocks.tolist()):
        offset = at * BLOCK_SIZE
        if not scope.chosen[offset : offset + BLOCK_SIZE].any():
            continue
        held = cache.get(connection, (block, model, len(wanted)), scope.vector_revisions[at])
        indexes = held.places + offset
        chosen = np.flatnonzero(scope.chosen[indexes])
        scores = (held.matrix @ asked)[chosen]
        best = at_least(scores, limit, MARGIN)
        found.append((indexes[chosen[best]], scores[best], held.matrix[chosen[best]]))
    if not found:
        return Scored(np.empty(0, np.int64), np.empty(0))
    indexes = np.concatenate([each[0] for each in found])
    best = at_least(np.concatenate([each[1] for each in found]), limit, MARGIN)[:MOST_AGAIN]
    matrix = np.concatenate([each[2] for each in found])[best]
    return Scored(scope.numbers(indexes[best]), _exactly(matrix, wanted))


def score_again(
    connection: Connection, select: ClauseElement, model: str, vector: bytes, numbers: list[int]
) -> Scored:
    """Score chunks that were found in another way, as `nearest` does.

    Args:
        connection: The snapshot in which they were found.
        select: Gives number and vector of the chunks among `numbers`, of `of_model`.
        model: The model.
        vector: What they are compared with.
        numbers: Their numbers.
    """
    rows = connection.all_bytes(select, {"numbers": among(numbers), "of_model": model})
    rows = [row for row in rows if len(row[1]) == len(vector)]
    if not rows:
        return Scored(np.empty(0, np.int64), np.empty(0))
    matrix = of_one_length([row[1] for row in rows], len(vector) // 4)
    found = np.array([row[0] for row in rows], np.int64)
    return Scored(found, _exactly(matrix, direction(vector)))


def _exactly(
    matrix: npt.NDArray[np.float32], wanted: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    # Not a product of matrices: each row is summed up in the same way, whatever stands beside it.
    sums = np.array([np.sum(row * wanted) for row in matrix.astype(np.float64)])
    exact: npt.NDArray[np.float64] = np.round(sums, SCORE_DIGITS)
    return exact
