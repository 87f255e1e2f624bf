# ruff: noqa: RUF001 - letters that look like others are what this is about
"""What is asked for is found: by words, by meaning, within filters, with its source."""

import json

import pytest

from host_service.capabilities.knowledge import hit_message
from host_service.errors import InvalidArgument
from tests.integration.knowledge.conftest import World
from tests.unit.knowledge.pdfs import pdf_of


async def test_two_characters_are_found_inside_a_sentence(world: World) -> None:
    base = await world.base()
    await world.add(base, "a.txt", "明天下午三点开项目评审会议")
    await world.add(base, "b.txt", "今天上午没有会")
    assert await world.texts("评审") == ["明天下午三点开项目评审会议"]


async def test_name_is_found_between_characters_that_are_not_of_it(world: World) -> None:
    base = await world.base()
    await world.add(base, "a.txt", "重跑gen-itgc后再看结果")
    assert await world.texts("itgc") == ["重跑gen-itgc后再看结果"]
    assert await world.texts("ＩＴＧＣ") == ["重跑gen-itgc后再看结果"]


async def test_source_of_a_hit_is_told(world: World) -> None:
    base = await world.base()
    await world.add(
        base,
        "guide.md",
        "# Guide\n\n## Tokens\n\nA token ends.\n",
        metadata_json='{"id": 9007199254740993}',
    )
    await world.add(base, "report.pdf", pdf_of(["Nothing.", "Profits rose."]), name="Report")
    token = hit_message((await world.search("token"))[0])
    assert (token.knowledge_base_id, token.document_id, token.document_name) == (
        "docs",
        "guide.md",
        "guide.md",
    )
    assert token.metadata_json == '{"heading":"Guide > Tokens","id":9007199254740993}'
    profits = hit_message((await world.search("profits"))[0])
    assert (profits.document_name, profits.text) == ("Report", "Profits rose.")
    assert json.loads(profits.metadata_json) == {"page": 2}


async def test_metadata_of_the_document_is_never_written_over(world: World) -> None:
    base = await world.base()
    own = '{"heading": "mine", "page": "x"}'
    await world.add(base, "a.md", "# H\n\nwords", metadata_json=own)
    hit = hit_message((await world.search("words"))[0])
    assert json.loads(hit.metadata_json) == json.loads(own)


async def test_filters_hold_for_words_and_vectors(world: World) -> None:
    base = await world.base(with_vectors=True)
    await world.add(base, "a.txt", "Lunch is at noon.", metadata_json='{"site": "north"}')
    await world.add(base, "b.txt", "Lunch is at one.", metadata_json='{"site": "south"}')
    hits = await world.search("when is lunch", filters_json='{"site": ["south", "east"]}')
    assert [hit.document.document_id for hit in hits] == ["b.txt"]
    assert await world.search("lunch", filters_json='{"site": "west"}') == []
    with pytest.raises(InvalidArgument, match="filters_json"):
        await world.search("lunch", filters_json='{"site": {"a": 1}}')


async def test_what_is_first_by_words_and_vectors_is_first_with_the_score_one(
    world: World,
) -> None:
    base = await world.base(with_vectors=True)
    await world.add(base, "a.txt", "The kettle is in the kitchen.")
    await world.add(base, "b.txt", "The garden has a kettle too, and many other things besides.")
    hits = await world.search("kettle kitchen")
    assert [hit.document.document_id for hit in hits] == ["a.txt", "b.txt"]
    assert hits[0].score == pytest.approx(1.0)
    assert hits[0].score > hits[1].score > 0


async def test_bases_with_and_without_vectors_are_searched_together(world: World) -> None:
    plain = await world.base("plain")
    meaning = await world.base("meaning", with_vectors=True)
    await world.add(plain, "a.txt", "The kettle is in the kitchen.")
    await world.add(meaning, "b.txt", "The kettle is in the cellar.")
    hits = await world.search("kettle")
    assert {hit.knowledge_base_id for hit in hits} == {"plain", "meaning"}
    # Neither is worth less for the ways in which it can be found.
    assert max(hit.score for hit in hits) / min(hit.score for hit in hits) < 1.5


async def test_passages_that_say_the_same_are_told_once(world: World) -> None:
    base = await world.base()
    await world.add(base, "a.txt", "The kettle is in the kitchen.")
    await world.add(base, "copy.txt", "The kettle is in the kitchen.")
    await world.add(base, "b.txt", "The kettle was in the garden.")
    assert await world.texts("kettle kitchen") == [
        "The kettle is in the kitchen.",
        "The kettle was in the garden.",
    ]


async def test_empty_base_and_blank_and_endless_queries_are_answered(world: World) -> None:
    base = await world.base(with_vectors=True)
    assert await world.texts("anything") == []
    await world.add(base, "a.txt", "Some words.")
    assert await world.texts("  \n ") == []
    assert await world.texts("!!!", top_k=50) == ["Some words."]
    assert await world.texts("some " * 100_000) == ["Some words."]
    assert len(world.model.texts[-1]) <= 1024


async def test_base_that_was_removed_has_nothing(world: World) -> None:
    base = await world.base()
    await world.add(base, "a.txt", "Some words.")
    await world.stores.catalogue.delete_item(base.KIND, base.id)
    del world.bases["docs"]
    assert await world.texts("words", "docs", "never-was") == []


async def test_no_more_are_told_than_asked_for(world: World) -> None:
    base = await world.base()
    for i in range(9):
        await world.add(base, f"{i}.txt", f"Kettle number {i}.")
    assert len(await world.texts("kettle", top_k=3)) == 3
