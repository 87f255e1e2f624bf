"""What is removed is gone at once, its rows follow, and nothing else goes."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from stores import Stores, open_stores
from stores.errors import StagingLost
from stores.knowledge_records import (
    CollectedKnowledge,
    DocumentStatus,
    KnowledgeCounts,
    pack_vector,
)
from stores.records import ArtifactHeader, CatalogueKind
from stores.sql import knowledge_collecting, knowledge_sweeping
from tests.conformance.stores.knowledge_samples import (
    BASE,
    MODEL,
    a_base,
    a_header,
    chunks_of,
    found,
    rows_of_knowledge,
)
from tests.conformance.stores.samples import NOON


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def stores(database_url: str, tmp_path: Path, clock: Clock) -> AsyncIterator[Stores]:
    """Gives stores with an empty knowledge base."""
    opened = await open_stores(database_url, clock=clock, blobs_url=(tmp_path / "blobs").as_uri())
    await a_base(opened)
    yield opened
    await opened.close()


def texts(count: int, word: str = "token") -> list[str]:
    return [f"{word} {word}{number} 令牌{number}" for number in range(count)]


async def an_artifact(stores: Stores, name: str, *, expires_at: datetime | None = None) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield f"bytes of {name}".encode()

    header = ArtifactHeader(
        artifact_id=name, workspace="acme", bot="", conversation_key="", type="document",
        created_at=NOON, expires_at=expires_at,
    )  # fmt: skip
    await stores.artifacts.write(header, content())


async def test_removed_document_is_gone_at_once_and_its_rows_follow(
    stores: Stores, database_url: str
) -> None:
    vectors = [[1.0, 2.0]] * 300
    header = a_header(metadata_json='{"n": 1}')
    await stores.knowledge.put_document(header, chunks_of(*texts(300), vectors=vectors))
    staged = await stores.knowledge.stage(a_header(sha256=b"2"))
    await stores.knowledge.add_chunks(staged, chunks_of("staged"))
    await stores.knowledge.put_document(a_header("kept"), chunks_of("token kept"))
    assert await stores.knowledge.remove_document(BASE, "guide")
    assert await found(stores, "token") == ["kept 0"]
    assert not await stores.knowledge.search_vectors([BASE], MODEL, pack_vector([1, 2]))
    assert await stores.knowledge.get_document(BASE, "guide") is None
    assert (await stores.knowledge.counts(BASE)).documents == 1
    with pytest.raises(StagingLost):
        await stores.knowledge.finish(staged)
    await stores.knowledge.collect()
    rows = rows_of_knowledge(database_url)
    assert rows.pop("knowledge_postings") == len({"token", "kept"})
    assert set(rows.values()) == {1}
    assert rows.keys() == {
        f"knowledge_{name}"
        for name in ("bases", "documents", "versions", "chunks", "ranges", "blocks")
    }
    assert not await stores.knowledge.remove_document(BASE, "guide")
    assert not await stores.knowledge.remove_document("unknown", "guide")


async def test_postings_of_what_was_replaced_are_swept(stores: Stores, database_url: str) -> None:
    for number in range(6):
        header = a_header(sha256=b"%d" % number)
        await stores.knowledge.put_document(header, chunks_of(*texts(300, f"word{number}")))
    await stores.knowledge.collect()
    rows = rows_of_knowledge(database_url)
    assert rows["knowledge_chunks"] == 300
    # The last version, and of one block less than half of what it has room for.
    once = await postings_of(stores, database_url, texts(300, "word5"))
    assert once <= rows["knowledge_postings"] < once + once * 512 / 300
    assert len(await found(stores, "word5")) == 100
    assert await found(stores, "word4") == []
    assert await found(stores, "word599") == ["guide 99"]


async def postings_of(stores: Stores, database_url: str, texts_: list[str]) -> int:
    await a_base(stores, "once")
    before = rows_of_knowledge(database_url)["knowledge_postings"]
    await stores.knowledge.put_document(a_header(knowledge_base_id="once"), chunks_of(*texts_))
    return rows_of_knowledge(database_url)["knowledge_postings"] - before


async def test_search_is_right_while_a_block_is_swept(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge_sweeping, "TERMS", 5)
    await stores.knowledge.put_document(a_header("kept"), chunks_of(*texts(40, "kept")))
    header = a_header("gone")
    await stores.knowledge.put_document(header, chunks_of(*texts(60, "gone")))
    await stores.knowledge.remove_document(BASE, "gone")
    gone = asyncio.create_task(stores.knowledge.collect())
    first = await stores.knowledge.search_text([BASE], "kept kept7 令牌3", limit=40)
    looks = 0
    # And what comes in the middle of it stays.
    added = await stores.knowledge.put_document(a_header("new"), chunks_of("gone anew"))
    while not gone.done():
        assert await found(stores, "gone") == ["new 0"]
        looks += 1
    assert looks > 0
    assert added.chunk_count == 1
    await stores.knowledge.remove_document(BASE, "new")
    last = await stores.knowledge.search_text([BASE], "kept kept7 令牌3", limit=40)
    assert [hit.chunk for hit in first] == [hit.chunk for hit in last]
    assert [hit.score for hit in first] == [hit.score for hit in last]


@pytest.mark.parametrize("deleted", [False, True])
async def test_removed_base_takes_all_its_documents(
    stores: Stores, database_url: str, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    monkeypatch.setattr(knowledge_collecting, "_BATCH", 50)
    await a_base(stores, "other")
    there = a_header("there", knowledge_base_id="other")
    await stores.knowledge.put_document(there, chunks_of("token"))
    kept = rows_of_knowledge(database_url)
    for name in ("a", "b", "c"):
        header = a_header(name, metadata_json='{"n": 1}')
        await stores.knowledge.put_document(header, chunks_of(*texts(150), vectors=[[1, 0]] * 150))
    staged = await stores.knowledge.stage(a_header("d"))
    if deleted:
        assert await stores.catalogue.delete_item(CatalogueKind.KNOWLEDGE_BASE, BASE)
        await a_base(stores)
    else:
        assert await stores.knowledge.remove_base(BASE)
    with pytest.raises(StagingLost):
        await stores.knowledge.add_chunks(staged, chunks_of("late"))
    assert await found(stores, "token") == []
    assert await stores.knowledge.counts(BASE) == KnowledgeCounts()
    # Under the same id another one may begin at once.
    await stores.knowledge.put_document(a_header("a", sha256=b"new"), chunks_of("token new"))
    await stores.knowledge.collect()
    assert await found(stores, "token") == ["a 0"]
    await stores.knowledge.remove_base(BASE)
    await stores.knowledge.collect()
    assert rows_of_knowledge(database_url) == kept
    assert not await stores.knowledge.remove_base(BASE)


async def test_what_was_removed_is_collected_after_the_next_start(
    stores: Stores, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stores.knowledge.put_document(a_header(), chunks_of(*texts(300)))
    monkeypatch.setattr(knowledge_collecting.KnowledgeCollector, "wake", lambda _: None)
    await stores.knowledge.remove_base(BASE)
    assert rows_of_knowledge(database_url)["knowledge_chunks"] == 300
    other = await open_stores(database_url)
    try:
        while rows_of_knowledge(database_url):
            await other.ping()
    finally:
        await other.close()


async def test_what_was_staged_and_left_is_dropped_after_a_grace(
    stores: Stores, database_url: str, clock: Clock
) -> None:
    await stores.knowledge.put_document(a_header("old"), chunks_of("token"))
    for name in ("old", "new"):
        staged = await stores.knowledge.stage(a_header(name, sha256=b"2", name="2.md"))
        await stores.knowledge.add_chunks(staged, chunks_of("token", "left"))
    clock.now += timedelta(hours=1)
    assert await stores.knowledge.collect() == CollectedKnowledge()
    again = await stores.knowledge.stage(a_header("new", sha256=b"2", name="2.md"))
    assert again.chunk_count == 2
    clock.now += timedelta(days=2)
    assert await stores.knowledge.collect() == CollectedKnowledge(versions=2, chunks=4)
    old, new = (await stores.knowledge.documents(BASE)).items[::-1]
    assert (old.status, old.name, old.is_searchable) == (DocumentStatus.FAILED, "old.md", True)
    assert (new.status, new.name, new.is_searchable) == (DocumentStatus.FAILED, "2.md", False)
    assert new.reason is not None
    assert "again" in new.reason
    assert rows_of_knowledge(database_url)["knowledge_chunks"] == 1
    with pytest.raises(StagingLost):
        await stores.knowledge.finish(again)
    assert await stores.knowledge.collect() == CollectedKnowledge()
    await stores.knowledge.put_document(a_header("new", sha256=b"2"), chunks_of("token"))
    assert await found(stores, "token") == ["old 0", "new 0"]


async def test_what_was_left_goes_in_the_background(
    stores: Stores, database_url: str, clock: Clock
) -> None:
    staged = await stores.knowledge.stage(a_header())
    await stores.knowledge.add_chunks(staged, chunks_of("token"))
    clock.now += timedelta(days=2)
    other = await open_stores(database_url, clock=clock)
    try:
        while "knowledge_chunks" in rows_of_knowledge(database_url):
            await other.ping()
    finally:
        await other.close()
    left = await stores.knowledge.get_document(BASE, "guide")
    assert left is not None
    assert left.status is DocumentStatus.FAILED


async def test_artifact_of_a_document_stays_as_long_as_the_document(
    stores: Stores, clock: Clock
) -> None:
    for name in ("original", "loose"):
        await an_artifact(stores, name, expires_at=NOON + timedelta(hours=1))
    header = a_header(artifact_id="original")
    await stores.knowledge.put_document(header, chunks_of("token"))
    clock.now += timedelta(days=400)
    await stores.artifacts.collect_orphans(grace_seconds=0)
    await stores.retention.purge("acme", before=clock.now)
    assert await stores.artifacts.get("loose") is None
    assert await stores.artifacts.read("original", offset=0, length=100) == b"bytes of original"
    # The same bytes may stay with the next version, and with another document.
    await stores.knowledge.put_document(
        a_header(artifact_id="original", settings=b"2"), chunks_of("token")
    )
    await stores.knowledge.put_document(a_header("copy", artifact_id="original"), ())
    await stores.knowledge.remove_document(BASE, "guide")
    await stores.knowledge.collect()
    assert await stores.artifacts.get("original") is not None
    await an_artifact(stores, "next")
    await stores.knowledge.put_document(a_header("copy", artifact_id="next", sha256=b"3"), ())
    await stores.knowledge.collect()
    assert await stores.artifacts.get("original") is None
    assert await stores.artifacts.get("next") is not None
    await stores.catalogue.delete_item(CatalogueKind.KNOWLEDGE_BASE, BASE)
    await stores.knowledge.collect()
    assert await stores.artifacts.get("next") is None
    clock.now += timedelta(hours=2)
    assert (await stores.artifacts.collect_orphans(grace_seconds=0)).blobs >= 1


async def test_runs_write_on_while_a_large_base_is_removed(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge_collecting.KnowledgeCollector, "wake", lambda _: None)
    await stores.knowledge.put_document(a_header(), chunks_of(*texts(1_500)))
    await stores.knowledge.remove_base(BASE)
    collection = asyncio.create_task(stores.knowledge.collect())
    writes = 0
    while not collection.done():
        await stores.storage.set("area", "owner", "key", b"value")
        writes += 1
    # One transaction for all of it would let one or two through.
    assert writes > 5
    assert await collection == CollectedKnowledge(versions=1, chunks=1_500)
