"""Vectors of passages: had from a model, checked, and made later where they could not be had."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.catalogue.shelf import Shelf
from host_service.errors import HostError, InvalidArgument, PayloadTooLarge, Unavailable
from host_service.knowledge.document import HEADING_SEPARATOR
from host_service.limits import Limits
from stores.errors import StoreError
from stores.knowledge import Knowledge
from stores.knowledge_records import ChunkVector, StoredChunk, pack_vector

_log = logging.getLogger("runmesh.knowledge")

# What the store takes.
_LONGEST_VECTOR = 16_384
# Beyond this no float32 is finite; what is no number is below nothing.
_LARGEST_NUMBER = 3.4e38


class Embedder(Protocol):
    """Has vectors made by models of the catalogue."""

    async def embed(self, model_id: str, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, in order.

        Raises:
            HostError: They cannot be had.
        """


class Embedding:
    """Vectors as the store takes them.

    Args:
        embedder: Asks models.
    """

    def __init__(self, *, embedder: Embedder) -> None:
        self._embedder = embedder

    async def of_texts(self, model: str, texts: Sequence[str]) -> list[bytes]:
        """Return a vector for each text, in order.

        Raises:
            HostError: They cannot be had, or will not do.
        """
        vectors = await self._embedder.embed(model, texts)
        if len(vectors) != len(texts) or not all(map(_will_do, vectors)):
            raise Unavailable(
                f"model {model!r} gave vectors that cannot be used: one for each text is needed, "
                f"of at most {_LONGEST_VECTOR} finite numbers that are not all 0"
            )
        return [pack_vector(vector) for vector in vectors]

    async def of_passages(
        self, model: str, passages: Sequence[tuple[Sequence[str], str]]
    ) -> list[bytes]:
        """Return a vector for each passage, which is given as its headings and its text.

        Raises:
            HostError: As `of_texts`.
        """
        return await self.of_texts(model, [_with_headings(*passage) for passage in passages])


def _with_headings(headings: Sequence[str], text: str) -> str:
    """Return a passage with its headings: many a passage says only there what it is about."""
    return f"{HEADING_SEPARATOR.join(headings)}\n{text}" if headings else text


def _will_do(vector: Sequence[float]) -> bool:
    return (
        0 < len(vector) <= _LONGEST_VECTOR
        and all(abs(each) < _LARGEST_NUMBER for each in vector)
        # As float32, in which much smaller ones are 0.
        and any(abs(each) > 1e-30 for each in vector)
    )


@dataclass(frozen=True, slots=True)
class VectorsMade:
    """How far the vectors of a knowledge base have come: passages that have one, and all."""

    done: int
    total: int


class MissingVectors:
    """Makes vectors for passages that have none, in the background and when asked.

    Passages lack one when their model could not be reached as they came, and when their knowledge
    base was given another model since.

    Args:
        store: Where passages are.
        embedding: Has vectors made.
        shelf: Returns what the catalogue holds now.
        limits: How many at a time, and when a model that failed is asked again.
        wanted: Set by whoever knows that vectors may be missing.
    """

    def __init__(
        self,
        *,
        store: Knowledge,
        embedding: Embedding,
        shelf: Callable[[], Shelf],
        limits: Limits,
        wanted: asyncio.Event,
    ) -> None:
        self._store = store
        self._embedding = embedding
        self._shelf = shelf
        self._limits = limits
        self._wanted = wanted
        # At a start, whatever an earlier one left.
        self._wanted.set()

    def look(self) -> None:
        """Have it looked soon whether vectors are missing."""
        self._wanted.set()

    async def fill(self, base: KnowledgeBase) -> AsyncGenerator[VectorsMade, None]:
        """Make vectors until no passage of a knowledge base lacks one; say how far that has come.

        Raises:
            HostError: The model cannot be had; what was made before is stored.
        """
        model = base.embedding_model
        counts = await self._store.counts(base.id, model)
        done, total = counts.chunks_with_vectors, counts.chunks
        yield VectorsMade(done, total)
        after = 0
        while True:
            page = await self._store.without_vectors(
                base.id, model, after=after, limit=self._limits.embedded_passages
            )
            if page.items:
                made = await self._made(model, page.items)
                done += await self._store.set_vectors(base.id, model, made)
                # Passages that are not searched yet are among them.
                yield VectorsMade(done, max(done, total))
            if page.next_cursor is None:
                return
            after = page.next_cursor

    async def _made(self, model: str, chunks: Sequence[StoredChunk]) -> Sequence[ChunkVector]:
        """Return the vectors of chunks, without those that the model will not have."""
        passages = [(chunk.heading, chunk.text) for chunk in chunks]
        try:
            vectors = await self._embedding.of_passages(model, passages)
        except (InvalidArgument, PayloadTooLarge) as error:
            if len(chunks) == 1:
                # Too long for it, or forbidden by its provider: to ask again would change nothing.
                document = chunks[0].document_id
                _log.warning(
                    "model %s makes no vector for a passage of %s: %s", model, document, error
                )
                return []
            return [each for chunk in chunks for each in await self._made(model, [chunk])]
        numbered = zip(chunks, vectors, strict=True)
        return [ChunkVector(chunk.number, vector) for chunk, vector in numbered]

    async def keep(self) -> None:
        """Make what is missing, again and again, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if not await self._fill_all():
                loop = asyncio.get_running_loop()
                loop.call_later(self._limits.embedding_retry_seconds, self._wanted.set)
                # Not earlier, however often somebody asks: a model that is away is left alone.
                await asyncio.sleep(self._limits.embedding_retry_seconds)

    async def _fill_all(self) -> bool:
        """Return whether nothing is missing any more, as far as models can be asked."""
        complete = True
        shelf = self._shelf()
        for base in shelf.knowledge_bases.values():
            if not base.enabled or shelf.model(base.embedding_model) is None:
                continue
            try:
                async with aclosing(self.fill(base)) as steps:
                    async for _ in steps:
                        pass
            except (HostError, StoreError) as error:
                _log.warning(
                    "knowledge base %s: vectors could not be made, and are tried again: %s",
                    base.id,
                    error,
                )
                complete = False
        return complete
