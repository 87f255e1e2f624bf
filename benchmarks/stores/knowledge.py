"""Knowledge: taking in documents, and searching many passages by text and by vector."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from time import perf_counter

from benchmarks.report import Row, at_most
from benchmarks.rounds import Plan
from benchmarks.spread import percentile
from benchmarks.stores.databases import Database
from stores import Stores
from stores.knowledge_records import DocumentHeader, NewChunk, pack_vector
from stores.records import CatalogueItem, CatalogueKind

_BASE, _MODEL = "bench", "bench-embedding"
_DIMENSIONS = 384
_CHUNKS = {True: 5_000, False: 100_000}
# Passages of a document.
_DOCUMENT = 250
_ADDED = 1_000
_SEARCHES = {True: 20, False: 100}
_FOUND = 10
# As often as in a language: few words make up most of a text.
_WORDS = 20_000
_PAIRS = [chr(0x4E00 + number % 1_500) + chr(0x5E00 + number % 997) for number in range(_WORDS)]
# A usual word and pair of characters, two that are rare, and a sentence.
_QUERIES = (
    f"word12 {_PAIRS[15]}",
    f"word5000 {_PAIRS[4_000]}",
    "what does word7 say of word120 and word900",
)


@dataclass(slots=True)
class Texts:
    """Makes passages, the same ones each time."""

    chance: random.Random
    weights: list[float]

    @classmethod
    def seeded(cls) -> "Texts":
        """Returns texts from the beginning."""
        return cls(random.Random(7), list(accumulate(1 / (rank + 3) for rank in range(_WORDS))))

    def passage(self) -> str:
        """Returns some 600 characters, half of them English and half Chinese."""
        words = self.chance.choices(range(_WORDS), cum_weights=self.weights, k=50)
        pairs = self.chance.choices(_PAIRS, cum_weights=self.weights, k=100)
        return " ".join(f"word{number}" for number in words) + "\n" + "".join(pairs)

    def vector(self) -> bytes:
        """Returns a vector."""
        return pack_vector(self.chance.uniform(-1, 1) for _ in range(_DIMENSIONS))

    def chunks(self, count: int) -> Iterator[NewChunk]:
        """Gives passages with their vectors."""
        for number in range(count):
            yield NewChunk(
                position=number * 600,
                length=600,
                text=self.passage(),
                vector=self.vector(),
                vector_model=_MODEL,
            )


@dataclass(slots=True)
class Knowledge:
    """Takes in and searches."""

    stores: Stores
    texts: Texts

    async def fill(self, count: int) -> None:
        """Takes in documents with so many passages."""
        item = CatalogueItem(kind=CatalogueKind.KNOWLEDGE_BASE, id=_BASE, document="{}")
        await self.stores.catalogue.put_item(item)
        for number in range(count // _DOCUMENT):
            chunks = list(self.texts.chunks(_DOCUMENT))
            await self.stores.knowledge.put_document(_header(f"document-{number}"), chunks)

    async def adding(self) -> float:
        """Returns how long a document of a thousand passages takes, in ms."""
        chunks = list(self.texts.chunks(_ADDED))
        started = perf_counter()
        await self.stores.knowledge.put_document(_header("added"), chunks)
        return (perf_counter() - started) * 1e3

    async def by_text(self, searches: int) -> float:
        """Returns the slowest twentieth of searches by text, in ms."""
        times = []
        for number in range(searches):
            started = perf_counter()
            hits = await self.stores.knowledge.search_text(
                [_BASE], _QUERIES[number % len(_QUERIES)], limit=_FOUND
            )
            times.append((perf_counter() - started) * 1e3)
            assert len(hits) == _FOUND
        return percentile(times, 0.95)

    async def by_vector(self, searches: int) -> float:
        """Returns the slowest twentieth of searches by vector, in ms."""
        times = []
        for _ in range(searches):
            vector = self.texts.vector()
            started = perf_counter()
            hits = await self.stores.knowledge.search_vectors([_BASE], _MODEL, vector, limit=_FOUND)
            times.append((perf_counter() - started) * 1e3)
            assert len(hits) == _FOUND
        return percentile(times, 0.95)


def _header(document_id: str) -> DocumentHeader:
    return DocumentHeader(
        knowledge_base_id=_BASE,
        document_id=document_id,
        name=document_id,
        source=document_id,
        sha256=document_id.encode(),
    )


async def measure_knowledge(database: Database, stores: Stores, plan: Plan) -> Sequence[Row]:
    """Measures a hundred thousand passages or, if it has to be quick, five thousand."""
    count, searches = _CHUNKS[plan.quick], _SEARCHES[plan.quick]
    knowledge = Knowledge(stores, Texts.seeded())
    await knowledge.fill(count)
    first = [await knowledge.by_vector(1)]
    adding = [await knowledge.adding() for _ in range(plan.rounds)]
    # What was replaced is collected at its leisure, and not while others are measured.
    await stores.knowledge.collect()
    await knowledge.by_text(1)
    by_text = [await knowledge.by_text(searches) for _ in range(plan.rounds)]
    await knowledge.by_vector(1)
    by_vector = [await knowledge.by_vector(searches) for _ in range(plan.rounds)]
    name = f"{database.name}: knowledge"
    of = f"{count // 1_000}k passages, top {_FOUND}"
    return [
        Row(f"{name}, {_ADDED:,} passages added", "ms", adding, goal=at_most(2_000)),
        # The bounds are for a hundred thousand; fewer must keep them as well.
        Row(f"{name}, text among {of}, p95", "ms", by_text, goal=at_most(50)),
        Row(f"{name}, vectors among {of}, p95", "ms", by_vector, goal=at_most(100)),
        Row(f"{name}, vectors among {of}, the first time", "ms", first),
    ]
