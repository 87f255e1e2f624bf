"""Documents for the tests of knowledge, and ranking as it is defined, to compare with."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import sqlalchemy as sa

from stores import Stores
from stores.knowledge_records import DocumentHeader, KnowledgeHit, NewChunk, pack_vector
from stores.records import CatalogueItem, CatalogueKind
from stores.search_text import counted_terms, ranking_terms
from stores.sql.opening import open_database
from stores.sql.tables import metadata

BASE = "docs"
MODEL = "embedding"


async def a_base(stores: Stores, name: str = BASE) -> None:
    item = CatalogueItem(kind=CatalogueKind.KNOWLEDGE_BASE, id=name, document="{}")
    await stores.catalogue.put_item(item)


def a_header(document_id: Any = "guide", **changes: Any) -> DocumentHeader:
    header: dict[str, Any] = {
        "knowledge_base_id": BASE,
        "document_id": document_id,
        "name": f"{document_id}.md",
        "source": f"/docs/{document_id}.md",
        "mime_type": "text/markdown",
        "size_bytes": 100,
        "sha256": document_id.encode(),
        "settings": b"1000/100",
    }
    return DocumentHeader(**{**header, **changes})


def chunks_of(*texts: str, vectors: Sequence[Sequence[float]] = ()) -> list[NewChunk]:
    chunks, position = [], 0
    for at, text in enumerate(texts):
        vector = pack_vector(vectors[at]) if at < len(vectors) else None
        model = None if vector is None else MODEL
        chunks.append(
            NewChunk(
                position=position, length=len(text), text=text, vector=vector, vector_model=model
            )
        )
        position += len(text)
    return chunks


async def found(stores: Stores, query: str, **how: Any) -> list[str]:
    hits = await stores.knowledge.search_text([BASE], query, **{"limit": 100, **how})
    return [place(hit) for hit in hits]


def place(hit: KnowledgeHit) -> str:
    return f"{hit.document.document_id} {hit.chunk.ordinal}"


def rows_of_knowledge(url: str) -> dict[str, int]:
    """Count the rows of the tables that hold documents, by table; those without any left out."""
    with open_database(url, synchronous="FULL").engine.connect() as connection:
        counts = {
            table.name: connection.execute(
                sa.select(sa.func.count()).select_from(table)
            ).scalar_one()
            for table in metadata.sorted_tables
            if table.name.startswith("knowledge_")
        }
    return {name: count for name, count in counts.items() if count}


@dataclass
class Reference:
    """BM25 as it is written down, over passages in the order in which they were stored."""

    passages: list[tuple[str, str]]

    def scores(self, query: str) -> list[tuple[str, float]]:
        """Return the places that a query finds, best first, with their scores."""
        counted = [(name, counted_terms(text)) for name, text in self.passages]
        average = sum(terms.total() for _, terms in counted) / max(len(counted), 1)
        having: Counter[str] = Counter()
        for _, terms in counted:
            having.update(terms.keys())
        scored = [
            (name, sum(self._of_term(term, terms, having, average) for term in asked))
            for asked in [ranking_terms(query, most=64)]
            for name, terms in counted
        ]
        # Stable: of equal ones, that which was stored first.
        return sorted((one for one in scored if one[1] > 0), key=lambda one: -round(one[1], 9))

    def _of_term(
        self, term: str, terms: Counter[str], having: Counter[str], average: float
    ) -> float:
        count, times = len(self.passages), terms[term]
        rarity = log(1 + (count - having[term] + 0.5) / (having[term] + 0.5))
        length = 1 - 0.75 + 0.75 * terms.total() / average
        return rarity * times * 2.2 / (times + 1.2 * length)
