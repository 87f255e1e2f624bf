"""Ranking chunks by BM25 (Robertson and Zaragoza, 2009) over the postings of a query's terms.

In how many chunks a term stands is counted in the postings, of visible chunks alone: so the
statistics are right whatever was replaced or removed, and nothing has to be kept in step. All
arithmetic is done here, term by term in the order of their numbers, so that both databases give
the same to the last bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import sqlalchemy as sa

from stores.sql.connection import Connection
from stores.sql.dialect import Dialect
from stores.sql.knowledge_blocks import BLOCK_SIZE
from stores.sql.knowledge_postings import POSTING_BYTES, term_number
from stores.sql.knowledge_rows import among
from stores.sql.knowledge_scope import SCORE_DIGITS, Scope, Scored, at_least

if TYPE_CHECKING:
    import numpy.typing as npt

MOST_TERMS = 64
MOST_POSTINGS = 4_000_000
_K1 = 1.2
_B = 0.75


class Ranking:
    """Ranks by the statements of one engine."""

    def __init__(self, dialect: Dialect, *, most_postings: int = MOST_POSTINGS) -> None:
        """Take the engine's ways, and how many postings a search may look at."""
        self._most_postings = most_postings
        having = (
            f"FROM knowledge_postings WHERE {dialect.among('block', 'blocks')}"
            f" AND {dialect.among('term', 'terms')}"
        )
        self._select = sa.text(f"SELECT term, block, postings {having}")
        self._measure = sa.text(f"SELECT term, SUM(length(postings)) {having} GROUP BY term")

    def rank(
        self, connection: Connection, scope: Scope, terms: Sequence[str], limit: int
    ) -> Scored:
        """Return the best chunks of a knowledge base, and those as good as the last of them."""
        numbers = sorted(map(term_number, terms))
        numbers = self._affordable(connection, scope, numbers)
        found = self._postings(connection, scope, numbers)
        scores = np.zeros(len(scope.visible))
        count = int(np.count_nonzero(scope.visible))
        # Half the work of a search is in these few lines.
        lengths = scope.lengths.astype(np.float64) - 1
        average = float(lengths[scope.visible].mean()) if count else 0.0
        weights = _K1 * (1 - _B + _B * lengths / (average or 1.0))
        for number in numbers:
            places, counts = found.get(number, _NONE)
            is_visible = scope.visible[places]
            places, times = places[is_visible], counts[is_visible].astype(np.float64)
            having = len(places)
            rarity = np.log(1 + (count - having + 0.5) / (having + 0.5))
            # A term has one posting a place: nothing is added twice.
            scores[places] += rarity * times * (_K1 + 1) / (times + weights[places])
        scores = np.round(scores, SCORE_DIGITS)
        candidates = np.flatnonzero((scores > 0) & scope.chosen)
        best = candidates[at_least(scores[candidates], limit)]
        return Scored(scope.numbers(best), scores[best])

    def _affordable(self, connection: Connection, scope: Scope, numbers: list[int]) -> list[int]:
        """Return the rarest terms, as many as may be looked at."""
        if len(numbers) * len(scope.visible) <= self._most_postings:
            return numbers
        rows = connection.all(self._measure, _values(scope, numbers))
        sizes = sorted((int(size) // POSTING_BYTES, number) for number, size in rows)
        totals = accumulate(size for size, _ in sizes)
        return sorted(
            number
            for (_, number), total in zip(sizes, totals, strict=True)
            if total <= self._most_postings or number == sizes[0][1]
        )

    def _postings(
        self, connection: Connection, scope: Scope, numbers: list[int]
    ) -> dict[int, tuple[npt.NDArray[np.intp], npt.NDArray[np.uint16]]]:
        offsets = {block: at * BLOCK_SIZE for at, block in enumerate(scope.blocks.tolist())}
        of_term: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for term, block, postings in connection.all_bytes(self._select, _values(scope, numbers)):
            of_term[term].append((offsets[block], postings))
        return {term: _unpacked(rows) for term, rows in of_term.items()}


_NONE = (np.empty(0, np.intp), np.empty(0, np.uint16))


def _values(scope: Scope, numbers: list[int]) -> dict[str, str]:
    return {"blocks": among(scope.blocks.tolist()), "terms": among(numbers)}


def _unpacked(
    rows: Sequence[tuple[int, bytes]],
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint16]]:
    pairs = np.frombuffer(b"".join(postings for _, postings in rows), "<u2").reshape(-1, 2)
    sizes = [len(postings) // POSTING_BYTES for _, postings in rows]
    offsets = np.repeat(np.array([offset for offset, _ in rows], np.intp), sizes)
    return pairs[:, 0] + offsets, pairs[:, 1]
