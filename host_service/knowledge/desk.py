"""What the host does with knowledge, in one hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from host_service.catalogue.shelf import Shelf
from host_service.knowledge.ingest import Ingest
from host_service.knowledge.reading import DocumentReader
from host_service.knowledge.retrieval import Retrieval
from host_service.knowledge.vectors import Embedder, Embedding, MissingVectors
from host_service.limits import Limits
from stores.knowledge import Knowledge


class KnowledgeDesk:
    """Takes documents in, searches them, and makes vectors that are missing.

    Args:
        store: Where documents are kept.
        embedder: Asks models for vectors.
        shelf: Returns what the catalogue holds now.
        limits: How much is too much.
        vectors_wanted: Set by whoever knows that vectors may be missing, such as of passages whose
            knowledge base was given another model.

    Attributes:
        store: Where documents are kept.
        ingest: Takes documents in.
        retrieval: Searches.
        missing: Makes vectors.
    """

    def __init__(
        self,
        *,
        store: Knowledge,
        embedder: Embedder,
        shelf: Callable[[], Shelf],
        limits: Limits,
        vectors_wanted: asyncio.Event,
    ) -> None:
        embedding = Embedding(embedder=embedder)
        self._reader = DocumentReader(limits=limits)
        self.store = store
        self.missing = MissingVectors(
            store=store,
            embedding=embedding,
            shelf=shelf,
            limits=limits,
            wanted=vectors_wanted,
        )
        self.ingest = Ingest(
            store=store,
            reader=self._reader,
            embedding=embedding,
            missing=self.missing,
            limits=limits,
        )
        self.retrieval = Retrieval(store=store, embedding=embedding, shelf=shelf, limits=limits)
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Make vectors that are missing, from now on."""
        self._keeping = asyncio.create_task(self.missing.keep())

    async def close(self) -> None:
        """End whatever runs."""
        if self._keeping is not None:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeping
        await self._reader.close()
