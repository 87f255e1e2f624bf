"""Ranking is what it is defined to be, follows every change, and is alike on both databases."""

# ruff: noqa: RUF001 - letters of another width are what this is about

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from stores import Stores, open_stores
from stores.errors import InvalidRecord
from stores.knowledge_records import ChunkVector, NewChunk, pack_vector, unpack_vector
from stores.limits import StoreLimits
from stores.search_text import QUERY_CHARACTERS
from stores.sql import knowledge_ranking
from tests.conformance.stores.knowledge_samples import (
    BASE,
    MODEL,
    Reference,
    a_base,
    a_header,
    chunks_of,
    found,
    place,
)
from tests.conformance.stores.transferring import Make, make_database

__all__ = ["make_database"]

WORDS = (
    "run",
    "token",
    "host",
    "Host",
    "protects",
    "运行",
    "令牌",
    "主机",
    "保护",
    "ＡＢＣ",
    "x-1",
)
QUERIES = ("run token", "令牌", "主机保护", "what protects a HOST?", "abc", "x-1 run", "行令", "护")


@pytest.fixture
async def base(stores: Stores) -> Stores:
    await a_base(stores)
    return stores


@pytest.fixture
async def both(make_database: Make) -> AsyncIterator[tuple[Stores, Stores]]:
    """Gives stores of both engines, with an empty knowledge base in each."""
    opened = [await open_stores(make_database(engine)) for engine in ("sqlite", "postgresql")]
    for stores in opened:
        await a_base(stores)
    yield opened[0], opened[1]
    for stores in opened:
        await stores.close()


def some_text(chance: random.Random) -> str:
    joint = chance.choice(("", " "))
    return joint.join(chance.choices(WORDS, k=chance.randrange(1, 12)))


def some_vector(chance: random.Random) -> bytes:
    return pack_vector(chance.uniform(-1, 1) for _ in range(24))


@dataclass
class Told:
    """What was stored last under each id, by the number of its first chunk."""

    documents: dict[str, list[NewChunk]] = field(default_factory=dict)

    @property
    def places(self) -> list[tuple[str, NewChunk]]:
        return [
            (f"{name} {at}", chunk)
            for name, chunks in self.documents.items()
            for at, chunk in enumerate(chunks)
        ]


async def change_something(stores: Sequence[Stores], told: Told, chance: random.Random) -> None:
    name = f"document-{chance.randrange(12)}"
    if chance.random() < 0.2:
        removed = {await each.knowledge.remove_document(BASE, name) for each in stores}
        assert removed == {name in told.documents}
        told.documents.pop(name, None)
        return
    texts = [some_text(chance) for _ in range(chance.randrange(0, 400))]
    chunks = [
        NewChunk(position=0, length=1, text=text, vector=some_vector(chance), vector_model=MODEL)
        for text in texts
    ]
    for each in stores:
        await each.knowledge.put_document(a_header(name, sha256=chance.randbytes(8)), chunks)
    # What is stored again is stored last.
    told.documents.pop(name, None)
    told.documents[name] = chunks


async def test_both_rank_as_defined_whatever_was_replaced_and_removed(
    both: tuple[Stores, Stores],
) -> None:
    chance, told = random.Random(1), Told()
    for _ in range(14):
        await change_something(both, told, chance)
        reference = Reference([(name, chunk.text) for name, chunk in told.places])
        for query in QUERIES:
            expected = reference.scores(query)[:20]
            answers = [await each.knowledge.search_text([BASE], query, limit=20) for each in both]
            for hits in answers:
                assert [place(hit) for hit in hits] == [name for name, _ in expected]
                assert [hit.score for hit in hits] == pytest.approx(
                    [score for _, score in expected], abs=1e-9
                )
            assert [hit.score for hit in answers[0]] == [hit.score for hit in answers[1]]
        await check_vectors(both, told, chance)


async def check_vectors(both: tuple[Stores, Stores], told: Told, chance: random.Random) -> None:
    vector = some_vector(chance)
    wanted = np.array(unpack_vector(vector), np.float64)
    expected = []
    for name, chunk in told.places:
        assert chunk.vector is not None
        other = np.array(unpack_vector(chunk.vector), np.float64)
        cosine = wanted @ other / np.sqrt((wanted @ wanted) * (other @ other))
        expected.append((name, float(cosine)))
    expected.sort(key=lambda one: -one[1])
    answers = [
        await each.knowledge.search_vectors([BASE], MODEL, vector, limit=20) for each in both
    ]
    for hits in answers:
        assert [place(hit) for hit in hits] == [name for name, _ in expected[:20]]
        assert [hit.score for hit in hits] == pytest.approx(
            [score for _, score in expected[:20]], abs=1e-6
        )
    assert [hit.score for hit in answers[0]] == [hit.score for hit in answers[1]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("token", ["guide 0"]),
        ("TOKEN", ["guide 0"]),
        ("ｔｏｋｅｎ", ["guide 0"]),
        ("令牌", ["guide 1"]),
        ("令", ["guide 1"]),
        ("行令", ["guide 1"]),
        ("牌令", []),
        ("token 令牌", ["guide 1", "guide 0"]),
        ("ガギ", ["guide 2"]),
        ("C++", ["guide 3"]),
        ("tok", []),
        ("", []),
        ("?!。", []),
        ("'; DROP TABLE x; --", []),
        ('token OR NOT * " ) ( { } %s $1 :x', ["guide 0"]),
    ],
)
async def test_query_is_data_and_finds_what_it_says(
    base: Stores, query: str, expected: list[str]
) -> None:
    texts = ("the run token of a run", "运行令牌保护主机", "ｶﾞｷﾞグゲ", "C++ and Rust")
    await base.knowledge.put_document(a_header(), chunks_of(*texts))
    assert sorted(await found(base, query)) == sorted(expected)


async def test_passage_is_found_by_its_headings(base: Stores) -> None:
    chunk = NewChunk(position=0, length=4, text="text", heading=("Security", "令牌"))
    await base.knowledge.put_document(a_header(), [chunk])
    assert await found(base, "security") == await found(base, "令牌") == ["guide 0"]


async def test_rare_terms_and_short_passages_weigh_more(base: Stores) -> None:
    common = ["usual words here"] * 8
    await base.knowledge.put_document(
        a_header(),
        chunks_of(*common, "usual rare words here and many more of them", "rare", "usual"),
    )
    assert (await found(base, "usual rare", limit=3)) == ["guide 9", "guide 8", "guide 10"]


async def test_equal_passages_come_in_the_order_in_which_they_were_stored(base: Stores) -> None:
    for name in ("b", "a", "c"):
        await base.knowledge.put_document(
            a_header(name), chunks_of("same", "same", vectors=[[1, 2], [1, 2]])
        )
    expected = ["b 0", "b 1", "a 0", "a 1", "c 0"]
    assert await found(base, "same", limit=5) == expected
    hits = await base.knowledge.search_vectors([BASE], MODEL, pack_vector([2, 1]), limit=5)
    assert [place(hit) for hit in hits] == expected


FILTERED = [
    (None, ["a", "b", "c", "d", "e"]),
    ("{}", ["a", "b", "c", "d", "e"]),
    ('{"lang": "en"}', ["a", "b"]),
    ('{"lang": ["en", "zh"]}', ["a", "b", "c"]),
    ('{"lang": []}', []),
    ('{"lang": null}', ["d"]),
    ('{"lang": "EN"}', []),
    ('{"n": 1}', ["a", "b"]),
    ('{"n": 1.0}', ["a", "b"]),
    ('{"n": 10e-1}', ["a", "b"]),
    ('{"n": "1"}', ["c"]),
    ('{"n": true}', ["d"]),
    ('{"n": 9007199254740993}', ["e"]),
    ('{"n": 9007199254740992}', []),
    ('{"lang": "en", "n": 1, "tag": "x"}', ["a"]),
    ('{"tag": "y"}', ["a", "c"]),
    ('{"tag": ["z", "x"]}', ["a"]),
    ('{"Tag": "x"}', []),
    ('{"": "令牌 🧠"}', ["e"]),
    ('{"missing": null}', []),
]


@pytest.mark.parametrize(("filters", "expected"), FILTERED)
async def test_filters_compare_values_exactly(
    base: Stores, filters: str | None, expected: list[str]
) -> None:
    metadata = {
        "a": '{"lang": "en", "n": 1, "tag": ["x", "y"]}',
        "b": '{"lang": "en", "n": 1.00, "tag": []}',
        "c": '{"lang": "zh", "n": "1", "tag": "y"}',
        "d": '{"lang": null, "n": true}',
        "e": '{"n": 9007199254740993, "": "令牌 🧠"}',
    }
    for name, text in metadata.items():
        await base.knowledge.put_document(a_header(name), chunks_of("other"))
        header = a_header(name, metadata_json=text, sha256=b"new")
        await base.knowledge.put_document(header, chunks_of("token", vectors=[[1, 0]]))
    hits = await base.knowledge.search_text([BASE], "token", filters_json=filters)
    assert [hit.document.document_id for hit in hits] == expected
    assert {hit.document.metadata_json for hit in hits} == {metadata[name] for name in expected}
    near = await base.knowledge.search_vectors(
        [BASE], MODEL, pack_vector([1, 1]), filters_json=filters
    )
    assert [hit.document.document_id for hit in near] == expected


@pytest.mark.parametrize(
    "filters", ["[]", "1", "{", '{"a": {}}', '{"a": [[1]]}', '{"a": NaN}', '{"a": "\\ud800"}']
)
async def test_filter_that_is_none_is_refused(base: Stores, filters: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        await base.knowledge.search_text([BASE], "token", filters_json=filters)
    assert caught.value.field == "filters_json"


async def test_filters_change_no_score(base: Stores) -> None:
    await base.knowledge.put_document(a_header("a", metadata_json='{"n": 1}'), chunks_of("token"))
    await base.knowledge.put_document(a_header("b"), chunks_of("token and more", "nothing"))
    everything = await base.knowledge.search_text([BASE], "token")
    some = await base.knowledge.search_text([BASE], "token", filters_json='{"n": 1}')
    assert list(some) == [hit for hit in everything if hit.document.document_id == "a"]


async def test_several_bases_are_searched_each_by_itself(base: Stores) -> None:
    await a_base(base, "other")
    await base.knowledge.put_document(a_header(), chunks_of("token", "rest", vectors=[[1, 0]]))
    header = a_header("there", knowledge_base_id="other")
    await base.knowledge.put_document(header, chunks_of("token token", vectors=[[0, 1]]))
    alone = [await base.knowledge.search_text([each], "token") for each in (BASE, "other")]
    together = await base.knowledge.search_text(["other", BASE, "unknown", BASE], "token")
    assert list(together) == sorted(
        [*alone[0], *alone[1]], key=lambda hit: (-hit.score, hit.chunk.number)
    )
    near = await base.knowledge.search_vectors(["other", BASE], MODEL, pack_vector([1, 2]))
    assert [hit.knowledge_base_id for hit in near] == ["other", BASE]
    assert await base.knowledge.search_text([], "token") == []


async def test_bounds_of_a_search_are_told(base: Stores) -> None:
    for limit in (0, 1_001):
        with pytest.raises(InvalidRecord, match="limit"):
            await base.knowledge.search_text([BASE], "token", limit=limit)
    for query in ("\0", "\ud800"):
        with pytest.raises(InvalidRecord, match="query"):
            await base.knowledge.search_text([BASE], query)
    for vector in (b"", b"123", pack_vector([0.0]), pack_vector([float("nan")])):
        with pytest.raises(InvalidRecord, match="vector"):
            await base.knowledge.search_vectors([BASE], MODEL, vector)
    # What counts of a long query is its beginning.
    await base.knowledge.put_document(a_header(), chunks_of("first", "last"))
    words = ["first", *(f"w{number}" for number in range(200)), "last"]
    assert await found(base, " ".join(words)) == ["guide 0"]
    assert await found(base, "x" * QUERY_CHARACTERS + " last") == []


async def test_terms_beyond_what_may_be_looked_at_are_left_out_the_commonest_first(
    base: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge_ranking.Ranking.__init__, "__kwdefaults__", {"most_postings": 4})
    texts = ["common", "common", "common", "common rare", "rare"]
    await base.knowledge.put_document(a_header(), chunks_of(*texts))
    assert await found(base, "common rare") == ["guide 4", "guide 3"]
    assert len(await found(base, "common")) == 4


@pytest.mark.parametrize("cache_bytes", [0, 200_000, 512 * 1024 * 1024])
async def test_vectors_are_the_same_however_many_are_kept(
    database_url: str, cache_bytes: int
) -> None:
    chance = random.Random(2)
    limits = StoreLimits(vector_cache_bytes=cache_bytes)
    stores = await open_stores(database_url, limits=limits)
    try:
        await a_base(stores)
        vectors = [list(unpack_vector(some_vector(chance))) for _ in range(2_500)]
        chunks = chunks_of(*["text"] * len(vectors), vectors=vectors)
        await stores.knowledge.put_document(a_header(), chunks)
        last = 0
        for number in (0, 0, 1_500, 1_500, 2_499, 2_499):
            near = await stores.knowledge.search_vectors(
                [BASE], MODEL, pack_vector(vectors[number]), limit=1
            )
            assert [(hit.chunk.ordinal, round(hit.score, 6)) for hit in near] == [(number, 1)]
            last = near[0].chunk.number
        other = pack_vector([1.0] * 24)
        changed = [ChunkVector(last, other)]
        await stores.knowledge.set_vectors(BASE, MODEL, changed)
        near = await stores.knowledge.search_vectors([BASE], MODEL, other, limit=1)
        assert near[0].chunk.ordinal == 2_499
    finally:
        await stores.close()


async def test_vectors_of_another_length_are_passed_over(base: Stores) -> None:
    await base.knowledge.put_document(
        a_header(), chunks_of("two", "three", vectors=[[1, 0], [1, 0, 0]])
    )
    for vector, text in (([1.0, 1.0], "two"), ([1.0, 1.0, 1.0], "three")):
        near = await base.knowledge.search_vectors([BASE], MODEL, pack_vector(vector))
        assert [hit.chunk.text for hit in near] == [text]


async def test_many_search_at_once(base: Stores) -> None:
    await base.knowledge.put_document(a_header(), chunks_of("token", vectors=[[1, 0]]))
    answers = await asyncio.gather(
        *(base.knowledge.search_text([BASE], "token") for _ in range(20)),
        *(base.knowledge.search_vectors([BASE], MODEL, pack_vector([1, 0])) for _ in range(20)),
    )
    assert {hits[0].chunk.text for hits in answers} == {"token"}
