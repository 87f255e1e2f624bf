"""Finding the nearest vectors: in memory, or by what the database has for it.

What a database finds is scored once more here, so that a passage has the same score whichever way
it was found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import sqlalchemy as sa

from stores.limits import StoreLimits
from stores.sql.connection import Connection
from stores.sql.dialect import Dialect
from stores.sql.knowledge_blocks import BLOCK_SIZE
from stores.sql.knowledge_scope import Scope, Scored
from stores.sql.knowledge_vectors import VectorCache, nearest, score_again

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a database found.

    Attributes:
        numbers: The chunks that may be nearest, all of them chosen ones.
        covered: Of each block of the scope, whether it looked there.
    """

    numbers: npt.NDArray[np.int64]
    covered: npt.NDArray[np.bool_]


class VectorScoring(Protocol):
    """Compares vectors inside a database."""

    def candidates(
        self, connection: Connection, scope: Scope, model: str, vector: bytes, limit: int
    ) -> Candidates | None:
        """Return the nearest chosen chunks of a scope, or `None`: they are better found here.

        Args:
            connection: The snapshot that the scope is of; settings may be left behind in it.
            scope: Where to look.
            model: The model.
            vector: What they are compared with.
            limit: How many at least, if there are as many.
        """


class NearestVectors:
    """Finds the nearest, in whichever way is best; for any thread."""

    def __init__(self, *, dialect: Dialect, limits: StoreLimits) -> None:
        """Take the engine's ways, and what may be kept in memory and compared one by one."""
        self._cache = VectorCache(most_bytes=limits.vector_cache_bytes)
        self._scoring: VectorScoring | None = dialect.vector_scoring(limits)
        self._select = sa.text(
            "SELECT number, vector FROM knowledge_vectors"  # noqa: S608 - constants
            f" WHERE {dialect.among('number', 'numbers')} AND model = :of_model"
        )

    def find(
        self, connection: Connection, scope: Scope, model: str, vector: bytes, limit: int
    ) -> Scored:
        """Return the nearest chunks of a knowledge base, and those as near as the last of them."""
        found = None
        if self._scoring is not None:
            found = self._scoring.candidates(connection, scope, model, vector, limit)
        if found is None:
            return nearest(connection, scope, model, vector, limit, self._cache)
        numbers = found.numbers.tolist()
        scored = score_again(connection, self._select, model, vector, numbers)
        if found.covered.all():
            return scored
        rest = replace(scope, chosen=scope.chosen & ~np.repeat(found.covered, BLOCK_SIZE))
        others = nearest(connection, rest, model, vector, limit, self._cache)
        return Scored(
            np.concatenate([scored.numbers, others.numbers]),
            np.concatenate([scored.scores, others.scores]),
        )
