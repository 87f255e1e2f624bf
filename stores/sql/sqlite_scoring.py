"""Comparing vectors inside SQLite, exactly, with the functions of sqlite-vec.

They read every vector from the file, which takes longer than looking through those that are kept in
memory. So it is for knowledge bases whose vectors have no room there: without it, each search
would bring every one of them into Python.
"""

from __future__ import annotations

import numpy as np
import sqlalchemy as sa

from stores.sql.connection import Connection
from stores.sql.knowledge_blocks import BLOCK_BITS, BLOCK_SIZE
from stores.sql.knowledge_scope import Scope
from stores.sql.knowledge_vectors import MARGIN, MOST_AGAIN, direction
from stores.sql.vector_scoring import Candidates

# Numbers too large or too small for its arithmetic have no distance: they are compared again.
_SELECT = sa.text(
    "SELECT number, vec_distance_cosine(vector, :asked) FROM knowledge_vectors"
    " WHERE number >= :first AND number < :first + :places AND model = :of_model"
    " AND length(vector) = :size AND substr(:chosen, number - :first + 1, 1) = x'01'"
    " AND (vec_distance_cosine(vector, :asked) > :most) IS NOT TRUE"
)
_FARTHEST = 3.0


class SqliteScoring:
    """Finds the nearest, block by block, as `stores.sql.knowledge_vectors` does."""

    def __init__(self, *, cache_bytes: int) -> None:
        """Take how many bytes of vectors are kept in memory."""
        self._cache_bytes = cache_bytes

    def candidates(
        self, connection: Connection, scope: Scope, model: str, vector: bytes, limit: int
    ) -> Candidates | None:
        """Return the nearest; `None` for a knowledge base whose vectors have room in memory."""
        if np.count_nonzero(scope.visible) * len(vector) <= self._cache_bytes:
            return None
        values = {
            "asked": direction(vector).astype("<f4").tobytes(),
            "of_model": model,
            "size": len(vector),
            "places": BLOCK_SIZE,
        }
        numbers, distances = np.empty(0, np.int64), np.empty(0)
        most = _FARTHEST
        for at, block in enumerate(scope.blocks.tolist()):
            chosen = scope.chosen[at * BLOCK_SIZE : (at + 1) * BLOCK_SIZE]
            if not chosen.any():
                continue
            own = {"first": block << BLOCK_BITS, "chosen": chosen.tobytes(), "most": most}
            rows = connection.all(_SELECT, {**values, **own})
            if not rows:
                continue
            numbers = np.concatenate([numbers, [row[0] for row in rows]])
            found = [-_FARTHEST if row[1] is None else row[1] for row in rows]
            distances = np.concatenate([distances, found])
            most = _bound(distances, limit)
            is_near = distances <= most
            numbers, distances = numbers[is_near], distances[is_near]
        return Candidates(numbers[:MOST_AGAIN], np.ones(len(scope.blocks), np.bool_))


def _bound(distances: np.ndarray[tuple[int], np.dtype[np.float64]], limit: int) -> float:
    """Return how far away those may be that are still among the best."""
    if len(distances) <= limit:
        return _FARTHEST
    return float(np.partition(distances, limit - 1)[limit - 1]) + MARGIN
