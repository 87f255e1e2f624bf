"""Searching knowledge: each search is a few queries that see one moment.

Of each knowledge base the blocks are read, and with them what is searched there; then what scores
its chunks; and at last the passages of the best.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from stores.knowledge_filters import Filters
from stores.knowledge_records import KnowledgeHit
from stores.limits import StoreLimits
from stores.sql.connection import Connection
from stores.sql.dialect import Dialect
from stores.sql.knowledge_ranking import MOST_TERMS, Ranking
from stores.sql.knowledge_rows import CHUNK_COLUMNS, DOCUMENT_COLUMNS, among, chunk, document
from stores.sql.knowledge_scope import Scope, Scored
from stores.sql.tables import (
    knowledge_bases,
    knowledge_chunks,
    knowledge_documents,
    knowledge_versions,
)
from stores.sql.vector_scoring import NearestVectors


class KnowledgeSearch:
    """The searches of `stores.knowledge.Knowledge`, for threads that read.

    Attributes:
        most_terms: How many terms of a query count.
    """

    most_terms = MOST_TERMS

    def __init__(self, *, dialect: Dialect, limits: StoreLimits) -> None:
        """Take the engine's ways, and what may be kept in memory and compared one by one."""
        self._ranking = Ranking(dialect)
        self._vectors = NearestVectors(dialect=dialect, limits=limits)
        self._select = (
            sa.select(*DOCUMENT_COLUMNS, *CHUNK_COLUMNS)
            .select_from(knowledge_chunks)
            .join(knowledge_versions, knowledge_versions.c.number == knowledge_chunks.c.version)
            .join(
                knowledge_documents, knowledge_documents.c.number == knowledge_versions.c.document
            )
            .join(knowledge_bases, knowledge_bases.c.number == knowledge_versions.c.base)
            .where(sa.text(dialect.among("knowledge_chunks.number", "numbers")))
        )

    def by_text(
        self,
        connection: Connection,
        *,
        bases: Sequence[str],
        terms: Sequence[str],
        filters: Filters,
        limit: int,
    ) -> list[KnowledgeHit]:
        """Return the passages that answer a query best, best first."""
        found = [
            self._ranking.rank(connection, scope, terms, limit)
            for scope in _scopes(connection, bases, filters)
        ]
        return self._hits(connection, Scored.best(found, limit))

    def by_vector(
        self,
        connection: Connection,
        *,
        bases: Sequence[str],
        model: str,
        vector: bytes,
        filters: Filters,
        limit: int,
    ) -> list[KnowledgeHit]:
        """Return the passages whose vectors are nearest, nearest first."""
        found = [
            self._vectors.find(connection, scope, model, vector, limit)
            for scope in _scopes(connection, bases, filters)
        ]
        return self._hits(connection, Scored.best(found, limit))

    def _hits(
        self, connection: Connection, best: Sequence[tuple[int, float]]
    ) -> list[KnowledgeHit]:
        numbers = among([number for number, _ in best])
        rows = connection.all(self._select, {"numbers": numbers}) if best else []
        split = len(DOCUMENT_COLUMNS)
        of_number = {row[split]: row for row in rows}
        hits = []
        for number, score in best:
            row = of_number[number]
            found = document(row[:split])
            hits.append(
                KnowledgeHit(
                    knowledge_base_id=found.knowledge_base_id,
                    document=found,
                    chunk=chunk(found.document_id, row[split:]),
                    score=score,
                )
            )
        return hits


def _scopes(connection: Connection, bases: Sequence[str], filters: Filters) -> list[Scope]:
    found = [Scope.find(connection, base, filters) for base in bases]
    return [scope for scope in found if scope is not None]
