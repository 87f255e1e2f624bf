"""Finding passages: by their words always, by their vectors where a knowledge base has some."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from host_service.catalogue.shelf import Shelf
from host_service.errors import DeadlineExceeded, FieldFault, HostError, InvalidArgument
from host_service.knowledge.fusion import fuse
from host_service.knowledge.vectors import Embedding
from host_service.limits import Limits
from stores.errors import InvalidRecord
from stores.knowledge import Knowledge
from stores.knowledge_records import KnowledgeHit

_log = logging.getLogger("runmesh.knowledge")

# What counts of a query. The store says the same of itself.
_QUERY_CHARACTERS = 1024
# How many each ranking brings: what is far down in one may be first in the other.
_DEEPEST, _DEPTH_OF_EACH = 50, 4
# Of two passages of a document that share as much of the shorter one, the better stands for both.
_SHARED = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found.

    Attributes:
        hits: The passages, best first; their scores are comparable among themselves only.
        vectors_missing: Why vectors were not searched where there are some; empty: they were.
    """

    hits: Sequence[KnowledgeHit] = ()
    vectors_missing: str = ""


class Retrieval:
    """Searches knowledge bases.

    Args:
        store: Where passages are.
        embedding: Makes the vectors of queries.
        shelf: Returns what the catalogue holds now.
        limits: How long these may take.
    """

    def __init__(
        self,
        *,
        store: Knowledge,
        embedding: Embedding,
        shelf: Callable[[], Shelf],
        limits: Limits,
    ) -> None:
        self._store = store
        self._embedding = embedding
        self._shelf = shelf
        self._limits = limits

    async def search(
        self,
        knowledge_base_ids: Sequence[str],
        query: str,
        *,
        top_k: int,
        filters_json: str | None = None,
    ) -> Found:
        """Return the passages that answer a query best.

        A model that gives no vector costs only what it would have found.

        Args:
            knowledge_base_ids: Where to look; what is not there has nothing.
            query: Any text.
            top_k: How many at most.
            filters_json: Conditions on metadata; None: none.

        Raises:
            InvalidArgument: The filters will not do.
        """
        words = query[:_QUERY_CHARACTERS].strip()
        there = self._shelf().knowledge_bases
        ids = [each for each in dict.fromkeys(knowledge_base_ids) if each in there]
        if not ids or not words:
            return Found()
        depth = max(_DEEPEST, top_k * _DEPTH_OF_EACH)
        by_model: dict[str, list[str]] = {}
        for each in ids:
            if there[each].embedding_model:
                by_model.setdefault(there[each].embedding_model, []).append(each)
        by_text = await self._by_text(ids, words, filters_json, depth)
        found = await asyncio.gather(
            *(
                self._by_vectors(model, of_model, words, filters_json, depth)
                for model, of_model in by_model.items()
            )
        )
        trouble = next((each for each in found if isinstance(each, str)), "")
        nearest = [each for each in found if not isinstance(each, str)]
        return Found(hits=_fused(by_text, nearest, top_k), vectors_missing=trouble)

    async def _by_text(
        self, ids: Sequence[str], query: str, filters_json: str | None, depth: int
    ) -> Sequence[KnowledgeHit]:
        try:
            return await self._store.search_text(ids, query, filters_json=filters_json, limit=depth)
        except InvalidRecord as error:
            raise InvalidArgument([FieldFault(error.field, error.rule, "another value")]) from error

    async def _by_vectors(
        self, model: str, ids: Sequence[str], query: str, filters_json: str | None, depth: int
    ) -> Sequence[KnowledgeHit] | str:
        """Return what is nearest to a query, or why that cannot be told."""
        try:
            async with asyncio.timeout(self._limits.query_vector_seconds):
                [vector] = await self._embedding.of_texts(model, [query])
        except (HostError, TimeoutError) as error:
            told = error if isinstance(error, HostError) else _too_slow(model, self._limits)
            _log.warning("knowledge bases %s are searched by text only: %s", ", ".join(ids), told)
            return told.message
        return await self._store.search_vectors(
            ids, model, vector, filters_json=filters_json, limit=depth
        )


def _too_slow(model: str, limits: Limits) -> HostError:
    return DeadlineExceeded(
        f"model {model!r} gave no vector within {limits.query_vector_seconds:g} s"
    )


def _fused(
    by_text: Sequence[KnowledgeHit], by_vectors: Sequence[Sequence[KnowledgeHit]], top_k: int
) -> list[KnowledgeHit]:
    # What can be found by its text only must not be worth less for that: each knowledge base
    # has the same weight, whether it has one ranking or two.
    ranked_twice = {hit.knowledge_base_id for hits in by_vectors for hit in hits}

    def weight(hit: KnowledgeHit) -> float:
        return 0.5 if hit.knowledge_base_id in ranked_twice else 1.0

    rankings = [(hits, weight) for hits in (by_text, *by_vectors)]
    kept: list[KnowledgeHit] = []
    for hit, score in fuse(rankings, key=lambda hit: hit.chunk.number):
        if len(kept) == top_k:
            break
        if not any(_says_the_same(hit, other) for other in kept):
            kept.append(
                KnowledgeHit(
                    knowledge_base_id=hit.knowledge_base_id,
                    document=hit.document,
                    chunk=hit.chunk,
                    score=score,
                )
            )
    return kept


def _says_the_same(hit: KnowledgeHit, other: KnowledgeHit) -> bool:
    """Return whether one of two passages stands for both."""
    one, two = hit.chunk, other.chunk
    if one.text == two.text:
        return True
    if (hit.knowledge_base_id, one.document_id) != (other.knowledge_base_id, two.document_id):
        return False
    shared = min(one.position + one.length, two.position + two.length) - max(
        one.position, two.position
    )
    return shared >= _SHARED * min(one.length, two.length)
