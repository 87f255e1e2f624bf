"""Documents come in as versions: one is searched, whole, until the next one is."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from stores import Stores, open_stores
from stores.errors import InvalidRecord, MissingReference, StagingLost, ValueTooLarge
from stores.knowledge_records import (
    ChunkVector,
    DocumentStatus,
    KnowledgeCounts,
    pack_vector,
)
from tests.conformance.stores.knowledge_samples import (
    BASE,
    MODEL,
    a_base,
    a_header,
    chunks_of,
    found,
)

ODD_TEXTS = (
    " \t\r\n\v\f\x1c\x85\u2028 ",
    "\x01\x1f\x7f\x80\ufeff\ufffe\uffff\U0010ffff",
    'quotes " \' \\ \\u0000 {"a": [1, null]} $1 %s :x {1,2}',
    "中文 日本語 한국어 ภาษาไทย é 👩🏽\u200d💻 𠮷",
    "=" * 20_000,
    "w" * 60_000,
)


@pytest.fixture
async def base(stores: Stores) -> Stores:
    await a_base(stores)
    return stores


async def test_document_and_its_passages_come_back_as_they_were(base: Stores) -> None:
    header = a_header(metadata_json='{"n": 9007199254740993, "tags": ["a", "b"]}')
    chunks = [replace(chunk, heading=("Top", "下")) for chunk in chunks_of(*ODD_TEXTS)]
    stored = await base.knowledge.put_document(header, chunks)
    assert stored == await base.knowledge.get_document(BASE, "guide")
    assert {name: getattr(stored, name) for name in header.__dataclass_fields__} == {
        name: getattr(header, name) for name in header.__dataclass_fields__
    }
    assert (stored.status, stored.reason, stored.chunk_count) == (DocumentStatus.READY, None, 6)
    back = await base.knowledge.chunks(BASE, "guide")
    assert [chunk.ordinal for chunk in back] == list(range(6))
    assert [(c.position, c.length, c.text, c.heading) for c in back] == [
        (c.position, c.length, c.text, c.heading) for c in chunks
    ]
    assert [c.ordinal for c in await base.knowledge.chunks(BASE, "guide", first=2, limit=2)] == [
        2,
        3,
    ]


async def test_document_that_comes_again_replaces_the_one_before(base: Stores) -> None:
    first = await base.knowledge.put_document(a_header(), chunks_of("old token", "old rest"))
    assert await found(base, "old token") == ["guide 0", "guide 1"]
    second = await base.knowledge.put_document(
        a_header(sha256=b"new", name="new.md"), chunks_of("new token")
    )
    assert await found(base, "old") == []
    assert await found(base, "token") == ["guide 0"]
    assert (second.name, second.chunk_count, second.created_at) == ("new.md", 1, first.created_at)
    assert len((await base.knowledge.documents(BASE)).items) == 1


async def test_version_before_is_searched_until_the_next_is_finished(base: Stores) -> None:
    await base.knowledge.put_document(a_header(), chunks_of("old token"))
    staged = await base.knowledge.stage(a_header(sha256=b"new", name="new.md"))
    staged = await base.knowledge.add_chunks(staged, chunks_of("new token"))
    assert await found(base, "token") == ["guide 0"]
    assert await found(base, "new") == []
    during = await base.knowledge.get_document(BASE, "guide")
    assert during is not None
    assert (during.status, during.name, during.is_searchable) == (
        DocumentStatus.INGESTING,
        "guide.md",
        True,
    )
    assert (await base.knowledge.chunks(BASE, "guide"))[0].text == "old token"
    await base.knowledge.finish(staged)
    assert await found(base, "old") == []
    assert await found(base, "new") == ["guide 0"]


async def test_new_document_is_not_searched_before_it_is_finished(base: Stores) -> None:
    staged = await base.knowledge.add_chunks(
        await base.knowledge.stage(a_header()), chunks_of("token", vectors=[[1, 0]])
    )
    during = await base.knowledge.get_document(BASE, "guide")
    assert during is not None
    assert not during.is_searchable
    assert await found(base, "token") == []
    assert not await base.knowledge.search_vectors([BASE], MODEL, pack_vector([1, 0]))
    assert await base.knowledge.counts(BASE) == KnowledgeCounts(documents=1)
    await base.knowledge.finish(staged)
    assert await base.knowledge.counts(BASE, MODEL) == KnowledgeCounts(
        documents=1, searchable_documents=1, chunks=1, chunks_with_vectors=1, size_bytes=100
    )
    assert len(await base.knowledge.search_vectors([BASE], MODEL, pack_vector([1, 0]))) == 1


async def test_taking_in_goes_on_after_the_process_ended(base: Stores, database_url: str) -> None:
    staged = await base.knowledge.stage(a_header())
    await base.knowledge.add_chunks(staged, chunks_of("one", "two"))
    other = await open_stores(database_url)
    try:
        again = await other.knowledge.stage(a_header(name="renamed.md"))
        assert (again.version, again.chunk_count) == (staged.version, 2)
        again = await other.knowledge.add_chunks(again, chunks_of("three"))
        stored = await other.knowledge.finish(again)
    finally:
        await other.close()
    assert (stored.name, stored.chunk_count) == ("renamed.md", 3)
    assert await found(base, "one two three") == ["guide 0", "guide 1", "guide 2"]


@pytest.mark.parametrize("change", [{"sha256": b"other"}, {"settings": b"other"}])
async def test_other_bytes_or_settings_begin_anew(base: Stores, change: dict[str, bytes]) -> None:
    staged = await base.knowledge.stage(a_header())
    staged = await base.knowledge.add_chunks(staged, chunks_of("one"))
    other = await base.knowledge.stage(a_header("guide", **change))
    assert other.chunk_count == 0
    with pytest.raises(StagingLost, match="guide"):
        await base.knowledge.add_chunks(staged, chunks_of("two"))
    with pytest.raises(StagingLost):
        await base.knowledge.finish(staged)
    await base.knowledge.finish(other)
    assert await found(base, "one") == []


async def test_two_who_take_in_the_same_document_do_not_mix(base: Stores) -> None:
    staged = await base.knowledge.stage(a_header())
    mine = await base.knowledge.add_chunks(staged, chunks_of("mine"))
    with pytest.raises(StagingLost):
        await base.knowledge.add_chunks(staged, chunks_of("theirs"))
    with pytest.raises(StagingLost):
        await base.knowledge.finish(staged)
    await base.knowledge.finish(mine)
    with pytest.raises(StagingLost):
        await base.knowledge.finish(mine)
    assert await found(base, "mine theirs") == ["guide 0"]


async def test_failure_is_told_and_the_version_before_stays(base: Stores) -> None:
    await base.knowledge.put_document(a_header(), chunks_of("token"))
    staged = await base.knowledge.stage(a_header(sha256=b"broken"))
    failed = await base.knowledge.fail(staged, "it is encrypted")
    assert (failed.status, failed.reason) == (DocumentStatus.FAILED, "it is encrypted")
    assert failed.is_searchable
    assert await found(base, "token") == ["guide 0"]
    again = await base.knowledge.stage(a_header(sha256=b"broken"))
    during = await base.knowledge.get_document(BASE, "guide")
    assert during is not None
    assert (during.status, during.reason) == (DocumentStatus.INGESTING, None)
    await base.knowledge.finish(again)
    assert await found(base, "token") == []


async def test_large_document_goes_over_many_blocks(base: Stores) -> None:
    texts = [f"common word{number} {number * 7 % 10}" for number in range(2_500)]
    stored = await base.knowledge.put_document(a_header(), iter(chunks_of(*texts)))
    assert stored.chunk_count == 2_500
    for number in (0, 1_023, 1_024, 2_047, 2_048, 2_499):
        assert (await found(base, f"word{number}"))[0] == f"guide {number}"
    # A hundred of equal scores: those that were stored first.
    assert await found(base, "common") == [f"guide {number}" for number in range(100)]
    await base.knowledge.put_document(a_header(sha256=b"2"), chunks_of(*texts[:1_500]))
    assert (await base.knowledge.counts(BASE)).chunks == 1_500
    assert await found(base, "word2499") == []
    assert len(await found(base, "common", limit=1_000)) == 1_000


async def test_readers_see_one_version_whole_while_it_is_replaced(base: Stores) -> None:
    versions = 12
    await base.knowledge.put_document(a_header(), chunks_of(*["token v0"] * 5))
    is_done = False

    async def replace_it() -> None:
        nonlocal is_done
        for number in range(1, versions):
            header = a_header(sha256=b"%d" % number)
            await base.knowledge.put_document(header, chunks_of(*[f"token v{number}"] * 5))
        is_done = True

    async def look() -> int:
        looks = 0
        while not is_done:
            hits = await base.knowledge.search_text([BASE], "token", limit=100)
            assert len(hits) == 5
            assert len({hit.chunk.text for hit in hits}) == 1
            looks += 1
        return looks

    _, *looks = await asyncio.gather(replace_it(), look(), look())
    assert min(looks) > 0


async def test_documents_are_paged_by_id(base: Stores) -> None:
    names = ["B", "a", "b", "ä", "中", "𠮷"]
    for name in reversed(names):
        await base.knowledge.put_document(a_header(name), ())
    seen: list[str] = []
    after: str | None = None
    while True:
        page = await base.knowledge.documents(BASE, after=after, limit=2)
        seen += [document.document_id for document in page.items]
        after = page.next_cursor
        if after is None:
            break
    assert seen == names
    assert (await base.knowledge.documents("unknown")).items == ()


async def test_document_needs_its_knowledge_base_and_artifact(stores: Stores) -> None:
    with pytest.raises(MissingReference, match="knowledge base 'docs'"):
        await stores.knowledge.stage(a_header())
    await a_base(stores)
    with pytest.raises(MissingReference, match="artifact 'gone'"):
        await stores.knowledge.stage(a_header(artifact_id="gone"))
    assert (await stores.knowledge.documents(BASE)).items == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("document_id", ""),
        ("document_id", "x" * 256),
        ("name", "\0"),
        ("source", "\ud800"),
        ("sha256", b""),
        ("size_bytes", -1),
        ("metadata_json", "[]"),
        ("metadata_json", '{"a": {"b": 1}}'),
        ("metadata_json", '{"a": NaN}'),
        ("metadata_json", '{"a": 1, "a": 2}'),
        ("metadata_json", '{"a": "\\u0000"}'),
    ],
)
async def test_field_that_breaks_its_rule_is_named(base: Stores, field: str, value: object) -> None:
    with pytest.raises(InvalidRecord) as caught:
        await base.knowledge.stage(a_header(**{"document_id": "guide", field: value}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"text": ""}, "text"),
        ({"text": "x" * 65_537}, "text"),
        ({"text": "a\0b"}, "text"),
        ({"text": "\udc00"}, "text"),
        ({"heading": ("\0",)}, "heading"),
        ({"position": -1}, "position"),
        ({"vector": b"1234"}, "vector"),
        ({"vector": b"123", "vector_model": "m"}, "vector"),
        ({"vector": pack_vector([0, 0]), "vector_model": "m"}, "vector"),
        ({"vector": pack_vector([1, float("nan")]), "vector_model": "m"}, "vector"),
        ({"vector": pack_vector([1, float("inf")]), "vector_model": "m"}, "vector"),
    ],
)
async def test_chunk_that_breaks_its_rule_is_named_and_none_is_stored(
    base: Stores, change: dict[str, object], field: str
) -> None:
    staged = await base.knowledge.stage(a_header())
    good = chunks_of("good")[0]
    with pytest.raises(InvalidRecord) as caught:
        await base.knowledge.add_chunks(staged, [good, replace(good, **change)])  # type: ignore[arg-type]
    assert caught.value.field == field
    assert (await base.knowledge.finish(staged)).chunk_count == 0


async def test_metadata_has_a_bound(base: Stores) -> None:
    with pytest.raises(ValueTooLarge):
        await base.knowledge.stage(a_header(metadata_json='{"a": "%s"}' % ("x" * 65_536)))


async def test_vectors_may_come_later_and_be_replaced(base: Stores) -> None:
    await base.knowledge.put_document(
        a_header(), chunks_of("one", "two", "three", vectors=[[1, 0]])
    )
    page = await base.knowledge.without_vectors(BASE, MODEL, limit=1)
    assert ([chunk.text for chunk in page.items], page.next_cursor) == (
        ["two"],
        page.items[0].number,
    )
    rest = await base.knowledge.without_vectors(BASE, MODEL, after=page.items[0].number)
    assert ([chunk.text for chunk in rest.items], rest.next_cursor) == (["three"], None)
    two, three = page.items[0].number, rest.items[0].number
    vectors = [ChunkVector(two, pack_vector([0, 1])), ChunkVector(three + 1, pack_vector([1, 1]))]
    assert await base.knowledge.set_vectors(BASE, MODEL, vectors) == 1
    assert await base.knowledge.set_vectors("unknown", MODEL, vectors) == 0
    assert await near(base, [0, 1]) == [("two", 1.0), ("one", 0.0)]
    await base.knowledge.set_vectors(BASE, MODEL, [ChunkVector(two, pack_vector([-2, 0]))])
    assert await near(base, [0, 1]) == [("one", 0.0), ("two", 0.0)]
    await base.knowledge.set_vectors(BASE, "other", [ChunkVector(two, pack_vector([0, 3]))])
    assert await near(base, [0, 1]) == [("one", 0.0)]
    assert (await base.knowledge.counts(BASE, "other")).chunks_with_vectors == 1
    assert [c.text for c in (await base.knowledge.without_vectors(BASE, MODEL)).items] == [
        "two",
        "three",
    ]


async def near(stores: Stores, vector: list[float]) -> list[tuple[str, float]]:
    hits = await stores.knowledge.search_vectors([BASE], MODEL, pack_vector(vector))
    return [(hit.chunk.text, hit.score) for hit in hits]


async def test_times_are_those_of_the_clock(database_url: str) -> None:
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]
    stores = await open_stores(database_url, clock=lambda: times[0])
    try:
        await a_base(stores)
        await stores.knowledge.put_document(a_header(), ())
        first = times.pop(0)
        again = await stores.knowledge.put_document(a_header(sha256=b"2"), ())
        assert (again.created_at, again.updated_at) == (first, times[0])
    finally:
        await stores.close()
