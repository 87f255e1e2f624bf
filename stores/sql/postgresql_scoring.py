"""Finding the nearest vectors by the indexes of `stores.sql.pgvector`.

An index finds nearly all of the nearest: it is asked for more than are wanted, and these are scored
once more. Filters are kept exactly: it is asked for more until enough have passed, and where few
pass at all, these are compared one by one, in the database.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlalchemy as sa

from stores.sql.connection import Connection
from stores.sql.knowledge_blocks import BLOCK_BITS, BLOCK_SIZE
from stores.sql.knowledge_rows import among
from stores.sql.knowledge_scope import Scope
from stores.sql.knowledge_vectors import direction
from stores.sql.vector_scoring import Candidates

if TYPE_CHECKING:
    import numpy.typing as npt

logger = logging.getLogger(__name__)

# So many are compared one by one, rather than looked for among all; and so many, where the index
# would have to give too many others.
_FEW = 2_000
_SOME = 50_000
# How many an index is asked for at most; beyond that, all are compared one by one.
_MOST_ASKED = 16_000
# How many of the nearest it keeps on its way (`hnsw.ef_search`): more find more of them.
_LEAST_KEPT, _MOST_KEPT = 200, 1_000

_HAS_INDEXES = sa.text("SELECT to_regclass('vector_indexes') IS NOT NULL")
_COVERED = sa.text(
    "SELECT x.number, i.block FROM vector_indexes x JOIN vector_index_blocks i ON i.base = x.base"
    " JOIN knowledge_blocks b ON b.number = i.block AND b.vector_revision = i.revision"
    " WHERE x.base = :of_base AND x.model = :of_model AND x.dimensions = :dimensions AND x.is_whole"
)
_SAVE = sa.text("SAVEPOINT nearest")
_GO_BACK = sa.text("ROLLBACK TO SAVEPOINT nearest")
_SETTINGS = sa.text(
    "SELECT set_config('hnsw.ef_search', :kept, true),"
    " set_config('hnsw.iterative_scan', 'relaxed_order', true),"
    " set_config('hnsw.max_scan_tuples', :scanned, true),"
    " set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true)"
)


class PostgresqlScoring:
    """Searches the indexes that there are."""

    def __init__(self, *, unindexed_passages: int) -> None:
        """Take how many passages of a knowledge base are not indexed."""
        self._unindexed_passages = unindexed_passages
        self._selects: dict[int, _Selects] = {}
        self._has_indexes = False
        self._told: str | None = None

    def candidates(
        self, connection: Connection, scope: Scope, model: str, vector: bytes, limit: int
    ) -> Candidates | None:
        """Return the nearest; `None` where there is no index, or it finds too few."""
        if len(scope.blocks) * BLOCK_SIZE * 2 <= self._unindexed_passages:
            return None
        connection.run(_SAVE, {})
        try:
            return self._candidates(connection, scope, model, vector, limit)
        except Exception as error:
            if connection.is_lost:
                raise
            # The extension may go at any time; the vectors are there.
            connection.run(_GO_BACK, {})
            self._has_indexes = False
            self._tell(error)
            return None

    def _tell(self, error: Exception) -> None:
        told = str(error).partition("\n")[0]
        if told != self._told:
            logger.warning("vectors are compared without their index: %s", told)
        self._told = told

    def _candidates(
        self, connection: Connection, scope: Scope, model: str, vector: bytes, limit: int
    ) -> Candidates | None:
        if not self._has_indexes:
            self._has_indexes = connection.all(_HAS_INDEXES, {})[0][0]
        if not self._has_indexes:
            return None
        values = {"of_base": scope.base, "of_model": model, "dimensions": len(vector) // 4}
        rows = connection.all(_COVERED, values)
        if not rows:
            return None
        # Compiled once for each index, of which there are few.
        index = self._selects.setdefault(rows[0][0], _Selects(rows[0][0]))
        covered = np.isin(scope.blocks, np.array([row[1] for row in rows], np.int64))
        chosen = scope.chosen & np.repeat(covered, BLOCK_SIZE)
        asked = "[" + ",".join(map(repr, direction(vector).tolist())) + "]"
        numbers = self._found(connection, scope, chosen, index, asked, 2 * limit + 20)
        return None if numbers is None else Candidates(numbers, covered)

    def _found(
        self,
        connection: Connection,
        scope: Scope,
        chosen: npt.NDArray[np.bool_],
        index: _Selects,
        asked: str,
        wanted: int,
    ) -> npt.NDArray[np.int64] | None:
        indexes = np.flatnonzero(chosen)
        values: dict[str, Any] = {"asked": asked}
        most = wanted * len(chosen) // max(len(indexes), 1) + wanted
        while most <= _MOST_ASKED and len(indexes) > max(_FEW, wanted):
            kept = min(max(most, _LEAST_KEPT), _MOST_KEPT)
            connection.all(_SETTINGS, {"kept": str(kept), "scanned": str(_MOST_ASKED * 2)})
            rows = connection.all(index.nearest, {**values, "most": most})
            found = _among_chosen(scope, chosen, np.array([row[0] for row in rows], np.int64))
            if len(found) >= wanted:
                return found
            most *= 4
        if len(indexes) > _SOME:
            return None
        numbers = among(scope.numbers(indexes).tolist())
        rows = connection.all(index.few, {**values, "numbers": numbers, "most": wanted})
        return np.array([row[0] for row in rows], np.int64)


class _Selects:
    """The queries of one index."""

    __slots__ = ("few", "nearest")

    def __init__(self, number: int) -> None:
        distance = "vector <#> CAST(CAST(:asked AS text) AS halfvec)"
        of = f"SELECT number FROM vector_index_{int(number)}"  # noqa: S608 - a number
        self.nearest = sa.text(f"{of} ORDER BY {distance} LIMIT :most")
        # With the addition it is no order that the index has.
        self.few = sa.text(
            f"{of} WHERE number = ANY(CAST(:numbers AS bigint[])) ORDER BY ({distance}) + 0"
            " LIMIT :most"
        )


def _among_chosen(
    scope: Scope, chosen: npt.NDArray[np.bool_], numbers: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return those numbers that are of chosen chunks."""
    blocks = numbers >> BLOCK_BITS
    at = np.minimum(np.searchsorted(scope.blocks, blocks), len(scope.blocks) - 1)
    indexes = at * BLOCK_SIZE + (numbers & (BLOCK_SIZE - 1))
    found: npt.NDArray[np.int64] = numbers[(scope.blocks[at] == blocks) & chosen[indexes]]
    return found
