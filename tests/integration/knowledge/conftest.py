"""Knowledge on real stores of both engines, read by real processes; only the model is ours."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from host_service.catalogue.documents import Catalogued, item_of
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.catalogue.model import Model
from host_service.catalogue.shelf import Shelf
from host_service.errors import HostError, Unavailable
from host_service.knowledge.desk import KnowledgeDesk
from host_service.knowledge.ingest import IncomingDocument, Progress
from host_service.limits import Limits
from stores import Stores
from stores.knowledge_records import KnowledgeHit
from tests.conformance.stores.conftest import (  # noqa: F401 - fixtures
    database_url,
    migrated_file,
    migrated_server,
    postgresql_server,
    stores,
)

MODEL = "small-vectors"
LIMITS = Limits(embedded_passages=4, embedding_retry_seconds=0.05)
_WIDTH = 64


@dataclass
class WordVectors:
    """A model whose vectors have a number for each word, so that the same words are near.

    Attributes:
        failure: What it fails with; None: it works.
        texts: All that it was asked for.
    """

    failure: HostError | None = None
    texts: list[str] = field(default_factory=list)

    async def embed(self, model_id: str, texts: Sequence[str]) -> list[list[float]]:
        assert model_id == MODEL
        if self.failure is not None:
            raise self.failure
        self.texts += texts
        return [self._vector(text) for text in texts]

    def fail(self) -> None:
        self.failure = Unavailable("the model's server is away")

    @staticmethod
    def _vector(text: str) -> list[float]:
        vector = [0.001] * _WIDTH
        for word in text.lower().split():
            vector[hashlib.sha256(word.strip(".,:?").encode()).digest()[0] % _WIDTH] += 1.0
        return vector


class World:
    """A database with knowledge bases, and what the host does with them.

    Attributes:
        model: The model that makes vectors.
        desk: What is tested.
        stores: The database.
        bases: Knowledge bases by id.
    """

    def __init__(self, opened: Stores) -> None:
        self.stores = opened
        self.model = WordVectors()
        self.bases: dict[str, KnowledgeBase] = {}
        self.vectors_wanted = asyncio.Event()
        self.desk = KnowledgeDesk(
            store=opened.knowledge,
            embedder=self.model,
            shelf=self.shelf,
            limits=LIMITS,
            vectors_wanted=self.vectors_wanted,
        )

    def shelf(self) -> Shelf:
        models: list[Catalogued] = [
            Model(id=MODEL, kind="embedding", provider="openai", model_name="small")
        ]
        return Shelf.of(map(item_of, [*models, *self.bases.values()]))

    async def base(
        self, id: str = "docs", *, with_vectors: bool = False, characters: int = 120
    ) -> KnowledgeBase:
        base = KnowledgeBase(
            id=id,
            embedding_model=MODEL if with_vectors else "",
            chunk_characters=characters,
            overlap_characters=characters // 10,
        )
        self.bases[id] = base
        await self.stores.catalogue.apply([], [], [item_of(base)])
        return base

    async def add(
        self,
        base: KnowledgeBase,
        document_id: str,
        content: str | bytes,
        *,
        name: str = "",
        metadata_json: str = "{}",
    ) -> list[Progress]:
        incoming = IncomingDocument(
            document_id=document_id,
            name=name or document_id,
            source=f"/files/{document_id}",
            mime_type="",
            metadata_json=metadata_json,
            content=content.encode() if isinstance(content, str) else content,
        )
        return [each async for each in self.desk.ingest.add(base, incoming)]

    async def search(
        self, query: str, *ids: str, top_k: int = 5, filters_json: str | None = None
    ) -> Sequence[KnowledgeHit]:
        found = await self.desk.retrieval.search(
            ids or list(self.bases), query, top_k=top_k, filters_json=filters_json
        )
        return found.hits

    async def texts(self, query: str, *ids: str, top_k: int = 5) -> list[str]:
        return [hit.chunk.text for hit in await self.search(query, *ids, top_k=top_k)]


@pytest.fixture
async def world(stores: Stores) -> AsyncIterator[World]:  # noqa: F811 - the fixture
    made = World(stores)
    yield made
    await made.desk.close()
