"""Vectors that the database compares are found as those that are compared here."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa

from stores import Stores, open_stores
from stores.inspection import inspect_database
from stores.knowledge_records import ChunkVector, KnowledgeHit, NewChunk, pack_vector
from stores.limits import StoreLimits
from stores.migrations.migrate import downgrade
from stores.sql import vector_scoring
from stores.sql.opening import open_database
from stores.sql.schema import bring_up_to_date
from tests.conformance.stores.knowledge_samples import BASE, MODEL, a_base, a_header
from tests.conformance.stores.transferring import Make, make_database

__all__ = ["make_database"]

ENGINES = ("sqlite", "postgresql")
DIMENSIONS = 48
CLUSTERS = 40
HERE = StoreLimits(unindexed_passages=10**9)
# PostgreSQL indexes all of more than a block, SQLite compares what has no room in memory.
THERE = StoreLimits(vector_cache_bytes=0, unindexed_passages=1_024)
WAIT_SECONDS = 600.0

pytestmark = pytest.mark.timeout(900)


@dataclass
class Clusters:
    """Vectors as embeddings are: many near each other."""

    chance: np.random.Generator
    centres: np.ndarray[Any, Any]

    @classmethod
    def seeded(cls, seed: int) -> "Clusters":
        chance = np.random.default_rng(seed)
        return cls(chance, chance.normal(size=(CLUSTERS, DIMENSIONS)))

    def vector(self) -> bytes:
        centre = self.centres[self.chance.integers(CLUSTERS)]
        return pack_vector((centre + 0.5 * self.chance.normal(size=DIMENSIONS)).tolist())

    def chunks(self, count: int) -> list[NewChunk]:
        return [
            NewChunk(position=0, length=1, text="t", vector=self.vector(), vector_model=MODEL)
            for _ in range(count)
        ]


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, make_database: Make) -> str:
    """Gives an empty database that compares vectors itself; skips one that cannot."""
    made = make_database(request.param)
    report = inspect_database(made)
    if report.vectors is None:
        assert report.without_vectors
        pytest.skip(f"nothing compares vectors in this database: {report.without_vectors}")
    return made


@asynccontextmanager
async def opened(url: str, limits: StoreLimits) -> AsyncIterator[Stores]:
    stores = await open_stores(url, limits=limits)
    try:
        yield stores
    finally:
        await stores.close()


def ask(url: str, query: str) -> Any:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        row = connection.execute(query).fetchone()
        return None if row is None else row[0]


def tell(url: str, *statements: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


async def until(is_true: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await asyncio.to_thread(is_true):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.1)


async def indexed(url: str) -> None:
    """Wait until the index has every block as it is."""
    if url.startswith("sqlite"):
        return
    await until(lambda: ask(url, "SELECT to_regclass('vector_indexes') IS NOT NULL"))
    await until(
        lambda: ask(
            url,
            "SELECT (SELECT bool_and(is_whole) FROM vector_indexes) AND NOT EXISTS"
            " (SELECT FROM knowledge_blocks b LEFT JOIN vector_index_blocks i"
            " ON i.block = b.number WHERE i.revision IS DISTINCT FROM b.vector_revision)",
        )
    )


def refuse_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    def nearest(*_: object) -> None:
        raise AssertionError("they were compared here")

    monkeypatch.setattr(vector_scoring, "nearest", nearest)


async def search(
    stores: Stores, vectors: Sequence[bytes], **how: Any
) -> list[Sequence[KnowledgeHit]]:
    return [await stores.knowledge.search_vectors([BASE], MODEL, each, **how) for each in vectors]


def check_alike(
    url: str, exact: list[Sequence[KnowledgeHit]], found: list[Sequence[KnowledgeHit]]
) -> None:
    """Check that the same was found: all of it by what is exact, nearly all by an index."""
    if url.startswith("sqlite"):
        assert found == exact
        return
    scores = [{hit.chunk.number: hit.score for hit in hits} for hits in exact]
    same = 0
    for hits, known in zip(found, scores, strict=True):
        assert len(hits) == len(known)
        order = [(-hit.score, hit.chunk.number) for hit in hits]
        assert order == sorted(order)
        for hit in hits:
            same += hit.chunk.number in known
            assert hit.score == known.get(hit.chunk.number, hit.score)
    recall = same / sum(map(len, exact))
    print(f"recall at {len(exact[0])}: {recall:.4f}")  # noqa: T201 - it is to be seen
    assert recall >= 0.95


async def test_database_finds_what_is_found_here(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = Clusters.seeded(1)
    vectors = [clusters.vector() for _ in range(40)]
    async with opened(url, HERE) as stores:
        await a_base(stores)
        for name in ("a", "b"):
            await stores.knowledge.put_document(a_header(name), clusters.chunks(2_000))
        exact = [await search(stores, vectors, limit=limit) for limit in (10, 300)]
    async with opened(url, THERE) as stores:
        await indexed(url)
        refuse_numpy(monkeypatch)
        for before, limit in zip(exact, (10, 300), strict=True):
            check_alike(url, before, await search(stores, vectors, limit=limit))
    if not url.startswith("sqlite"):
        scans = "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE indexrelname LIKE '%graph'"
        await until(lambda: ask(url, scans) >= 2 * len(vectors))


async def test_filters_are_kept_exactly(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = Clusters.seeded(2)
    vectors = [clusters.vector() for _ in range(10)]
    async with opened(url, HERE) as stores:
        await a_base(stores)
        for name, count in (("rare", 30), ("usual", 6_000)):
            header = a_header(name, metadata_json=f'{{"kind": "{name}"}}')
            await stores.knowledge.put_document(header, clusters.chunks(count))
        filters = ['{"kind": "rare"}', '{"kind": "usual"}', '{"kind": ["usual", "rare"]}']
        exact = [await search(stores, vectors, filters_json=each) for each in filters]
    async with opened(url, THERE) as stores:
        await indexed(url)
        refuse_numpy(monkeypatch)
        found = [await search(stores, vectors, filters_json=each) for each in filters]
    assert found[0] == exact[0]
    assert all(len(hits) == 10 for hits in found[0])
    for before, after in zip(exact, found, strict=True):
        check_alike(url, before, after)
    assert all(hit.document.document_id == "usual" for hits in found[1] for hit in hits)


async def test_every_change_is_seen_at_once(url: str) -> None:
    clusters, chance = Clusters.seeded(3), random.Random(3)
    async with opened(url, THERE) as there, opened(url, HERE) as here:
        await a_base(there)
        for number in range(4):
            await there.knowledge.put_document(a_header(f"d{number}"), clusters.chunks(900))
        await indexed(url)
        vectors: list[bytes] = []
        for turn in range(6):
            name = f"d{turn % 4}"
            if turn == 2:
                assert await there.knowledge.remove_document(BASE, name)
            elif turn == 4:
                first = (await there.knowledge.chunks(BASE, name, limit=100))[0].number
                moved = [ChunkVector(first + at, clusters.vector()) for at in range(100)]
                await there.knowledge.set_vectors(BASE, MODEL, moved)
            else:
                header = a_header(name, sha256=chance.randbytes(8))
                await there.knowledge.put_document(header, clusters.chunks(700))
            staged = await there.knowledge.stage(a_header(f"staged {turn}"))
            await there.knowledge.add_chunks(staged, clusters.chunks(50))
            # Whatever of it is indexed by now.
            vectors = [clusters.vector() for _ in range(10)]
            check_alike(url, await search(here, vectors), await search(there, vectors))
        await there.knowledge.collect()
        await indexed(url)
        check_alike(url, await search(here, vectors), await search(there, vectors))


async def test_vectors_of_any_length_are_found(url: str) -> None:
    directions = [[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.0, 1.0, 0.0]]
    lengths = [1e-25, 1.0, 1e25]
    chunks = [
        NewChunk(
            position=0,
            length=1,
            text="t",
            vector=pack_vector([length * x for x in each]),
            vector_model=MODEL,
        )
        for each in directions
        for length in lengths
    ]
    async with opened(url, HERE) as stores:
        await a_base(stores)
        for number in range(150):
            await stores.knowledge.put_document(a_header(f"d{number}"), chunks)
        exact = await search(stores, [pack_vector(each) for each in directions], limit=1_000)
    async with opened(url, THERE) as stores:
        await indexed(url)
        found = await search(stores, [pack_vector(each) for each in directions], limit=1_000)
    assert found == exact


@pytest.fixture
def server(make_database: Make) -> str:
    """Gives an empty database of PostgreSQL."""
    return make_database("postgresql")


async def filled(url: str, limits: StoreLimits) -> list[Sequence[KnowledgeHit]]:
    """Store some thousand passages and return what is found among them, exactly."""
    clusters = Clusters.seeded(5)
    async with opened(url, limits) as stores:
        await a_base(stores)
        await stores.knowledge.put_document(a_header(), clusters.chunks(2_500))
        return await search(stores, QUERIES)


QUERIES = [Clusters.seeded(5).vector() for _ in range(5)]


async def test_host_goes_on_when_the_extension_is_dropped(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    exact = await filled(server, HERE)
    async with opened(server, THERE) as stores:
        await indexed(server)
        check_alike(server, exact, await search(stores, QUERIES))
        tell(server, "DROP EXTENSION vector CASCADE")
        with caplog.at_level(logging.WARNING):
            assert await search(stores, QUERIES) == exact
        assert [r.name for r in caplog.records].count("stores.sql.postgresql_scoring") == 1
        # Whatever changes lets it be made again.
        await stores.knowledge.remove_document(BASE, "nothing")
        await stores.knowledge.put_document(a_header("new"), Clusters.seeded(6).chunks(1))
        await indexed(server)
        await until(
            lambda: ask(server, "SELECT count(*) FROM pg_extension WHERE extname = 'vector'")
        )


async def test_without_the_right_to_make_it_vectors_are_compared_here_and_that_is_said_once(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = sa.make_url(server).database
    role = f"plain_{name}"
    in_schema = f"IN SCHEMA public TO {role}"
    tell(
        server,
        f"CREATE ROLE {role} LOGIN",
        f"GRANT ALL ON SCHEMA public TO {role}",
        f"GRANT ALL ON ALL TABLES {in_schema}",
        f"GRANT ALL ON ALL SEQUENCES {in_schema}",
    )
    try:
        plain = sa.make_url(server).set(username=role)
        url = plain.render_as_string(hide_password=False)
        with caplog.at_level(logging.WARNING):
            exact = await filled(url, THERE)
            async with opened(url, THERE) as stores:
                await until(lambda: "CREATE EXTENSION vector" in caplog.text)
                for number in range(3):
                    await stores.knowledge.put_document(
                        a_header(f"d{number}"), [NewChunk(position=0, length=1, text="t")]
                    )
                assert await search(stores, QUERIES) == exact
        told = [record for record in caplog.records if "CREATE EXTENSION" in record.message]
        # Once for each of the two stores that were opened, at most.
        assert 1 <= len(told) <= 2
        assert "superuser" in (inspect_database(url).without_vectors or "")
    finally:
        tell(server, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


async def test_index_goes_with_its_knowledge_base_and_with_the_schema(server: str) -> None:
    await filled(server, HERE)
    tables = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'vector_index%'"
    async with opened(server, THERE) as stores:
        await indexed(server)
        assert ask(server, tables) == 3
        await stores.knowledge.remove_base(BASE)
        await until(lambda: ask(server, tables) == 2)
        assert ask(server, "SELECT count(*) FROM vector_index_blocks") == 0
    await filled(server, HERE)
    async with opened(server, THERE):
        await indexed(server)
    database = open_database(server, synchronous="FULL")
    with database.engine.connect() as connection:
        downgrade(connection, database.dialect, "base")
    assert ask(server, tables) == 0
    bring_up_to_date(database)
