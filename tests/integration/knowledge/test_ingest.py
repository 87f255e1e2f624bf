"""Documents come in whole or not at all, go on where they were, and wait for no model."""

import asyncio
from contextlib import aclosing

import pytest

from host_service.errors import Conflict, FieldFault, InvalidArgument, NotFound
from host_service.knowledge.errors import DocumentRefused
from host_service.knowledge.ingest import IncomingDocument, Step
from stores.knowledge_records import DocumentStatus
from tests.integration.knowledge.conftest import MODEL, World
from tests.unit.knowledge.pdfs import pdf_of

LONG = "\n\n".join(
    f"Paragraph {i} tells of topic{i} in a few plain words, no more." for i in range(40)
)


def incoming(content: str, document_id: str = "a.md") -> IncomingDocument:
    return IncomingDocument(
        document_id=document_id,
        name=document_id,
        source="",
        mime_type="",
        metadata_json="{}",
        content=content.encode(),
    )


async def test_document_is_read_stored_and_found_at_its_position(world: World) -> None:
    base = await world.base()
    steps = await world.add(base, "a.md", f"# Guide\n\n{LONG}\n")
    assert [steps[0].step, steps[-1].step] == [Step.CUT, Step.READY]
    document = steps[-1].document
    assert document is not None
    assert (document.status, document.chunk_count) == (DocumentStatus.READY, steps[-1].total)
    (hit, *_) = await world.search("topic17")
    assert "topic17" in hit.chunk.text
    assert (hit.chunk.heading, hit.document.source) == (("Guide",), "/files/a.md")
    assert f"Guide\n\n{LONG}"[hit.chunk.position :].startswith(hit.chunk.text)


async def test_unchanged_document_is_left_as_it_is(world: World) -> None:
    base = await world.base(with_vectors=True)
    await world.add(base, "a.md", LONG)
    asked = len(world.model.texts)
    assert [each.step for each in await world.add(base, "a.md", LONG)] == [Step.UNCHANGED]
    assert len(world.model.texts) == asked


async def test_changed_document_takes_the_place_of_the_one_before(world: World) -> None:
    base = await world.base()
    await world.add(base, "a.md", "The office opens at nine.")
    await world.add(base, "a.md", "The office opens at eleven.")
    assert await world.texts("office") == ["The office opens at eleven."]


async def test_other_metadata_or_another_cut_is_a_change(world: World) -> None:
    base = await world.base()
    await world.add(base, "a.md", LONG)
    steps = await world.add(base, "a.md", LONG, metadata_json='{"team": "red"}')
    assert steps[-1].step is Step.READY
    assert await world.search("topic3", filters_json='{"team": "red"}')
    longer = await world.base(characters=400)
    steps = await world.add(longer, "a.md", LONG, metadata_json='{"team": "red"}')
    assert steps[-1].total < 40


async def test_version_before_is_searched_until_the_new_one_is_whole(world: World) -> None:
    base = await world.base(with_vectors=True)
    await world.add(base, "a.md", "Old words.")
    async with aclosing(world.desk.ingest.add(base, incoming(LONG))) as steps:
        async for each in steps:
            if each.step is Step.STORED:
                assert await world.texts("old topic0") == ["Old words."]
                break
    assert await world.texts("old topic0") == ["Old words."]


async def test_document_that_was_interrupted_goes_on_where_it_was(world: World) -> None:
    base = await world.base(with_vectors=True)
    async with aclosing(world.desk.ingest.add(base, incoming(LONG))) as steps:
        async for each in steps:
            if each.done >= 8:
                break
    asked = list(world.model.texts)
    assert 8 <= len(asked) < 20
    *_, last = [each async for each in world.desk.ingest.add(base, incoming(LONG))]
    assert last.step is Step.READY
    # No passage was asked for twice.
    assert len(world.model.texts) == len(set(world.model.texts)) == last.total
    counts = await world.stores.knowledge.counts(base.id, MODEL)
    assert counts.chunks == counts.chunks_with_vectors == last.total


async def test_interrupted_document_is_dropped_when_it_has_changed_since(world: World) -> None:
    base = await world.base(with_vectors=True)
    async with aclosing(world.desk.ingest.add(base, incoming(LONG))) as steps:
        async for each in steps:
            if each.done >= 8:
                break
    await world.add(base, "a.md", "Something else.")
    assert await world.texts("topic1 something") == ["Something else."]
    assert (await world.stores.knowledge.counts(base.id)).chunks == 1


async def test_two_calls_with_one_document_end_with_one_of_them_whole(world: World) -> None:
    base = await world.base(with_vectors=True)

    async def add(content: str) -> bool:
        try:
            return (await world.add(base, "a.md", content))[-1].step is Step.READY
        except Conflict:
            return False

    ended = await asyncio.gather(add(LONG), add(LONG.replace("topic", "theme")))
    assert any(ended)
    told = " ".join(await world.texts("paragraph", top_k=50))
    assert ("topic" in told) != ("theme" in told)


async def test_document_is_found_by_its_words_while_its_model_is_away(world: World) -> None:
    base = await world.base(with_vectors=True)
    world.model.fail()
    last = (await world.add(base, "a.md", LONG))[-1]
    assert (last.step, last.vectors_missing) == (Step.READY, "the model's server is away")
    assert "topic9" in (await world.texts("topic9"))[0]
    found = await world.desk.retrieval.search(["docs"], "topic9", top_k=1)
    assert found.vectors_missing == "the model's server is away"


async def test_vectors_are_made_once_the_model_is_back(world: World) -> None:
    base = await world.base(with_vectors=True)
    world.model.fail()
    total = (await world.add(base, "a.md", LONG))[-1].total
    world.desk.start()
    await asyncio.sleep(0)
    world.model.failure = None
    while (await world.stores.knowledge.counts(base.id, MODEL)).chunks_with_vectors < total:  # noqa: ASYNC110
        # What tells that they are there is the database, and it tells nobody by itself.
        await asyncio.sleep(0.02)
    assert not (await world.desk.retrieval.search(["docs"], "topic9", top_k=1)).vectors_missing


async def test_vectors_are_made_when_a_knowledge_base_is_given_a_model(world: World) -> None:
    base = await world.base()
    total = (await world.add(base, "a.md", LONG))[-1].total
    base = await world.base(with_vectors=True)
    made = [each async for each in world.desk.missing.fill(base)]
    assert (made[0].done, made[-1].done, made[-1].total) == (0, total, total)
    assert [each.done async for each in world.desk.missing.fill(base)] == [total]


async def test_passage_that_a_model_will_not_have_costs_the_others_nothing(world: World) -> None:
    base = await world.base(with_vectors=True)
    willing = world.model.embed

    async def unwilling(model: str, texts: list[str]) -> list[list[float]]:
        if any("topic7 " in text for text in texts):
            raise InvalidArgument([FieldFault("input", "shorter", "a long text")])
        return await willing(model, texts)

    world.model.embed = unwilling  # type: ignore[method-assign, assignment]
    total = (await world.add(base, "a.md", LONG))[-1].total
    async for _ in world.desk.missing.fill(base):
        pass
    counts = await world.stores.knowledge.counts(base.id, MODEL)
    having = [hit for hit in await world.search("topic7") if "topic7 " in hit.chunk.text]
    assert 0 < len(having) <= 3
    assert counts.chunks_with_vectors == total - len(having)


async def test_vectors_that_will_not_do_are_none(world: World) -> None:
    base = await world.base(with_vectors=True)

    async def not_a_number(_model: str, texts: list[str]) -> list[list[float]]:
        return [[float("nan")] for _ in texts]

    world.model.embed = not_a_number  # type: ignore[method-assign, assignment]
    last = (await world.add(base, "a.md", "Some words."))[-1]
    assert "cannot be used" in last.vectors_missing
    assert await world.texts("words") == ["Some words."]


async def test_document_that_cannot_be_read_is_noted_and_the_one_before_stays(
    world: World,
) -> None:
    base = await world.base()
    await world.add(base, "a.pdf", pdf_of(["Good words."]))
    with pytest.raises(DocumentRefused, match=r"'a.pdf' cannot be read: it is a PDF that cannot"):
        await world.add(base, "a.pdf", b"%PDF-1.4 broken")
    document = await world.stores.knowledge.get_document(base.id, "a.pdf")
    assert document is not None
    assert (document.status, document.is_searchable) == (DocumentStatus.FAILED, True)
    assert "damaged" in (document.reason or "")
    assert await world.texts("good") == ["Good words."]
    # What was noted is no reason to leave a better one out.
    assert (await world.add(base, "a.pdf", pdf_of(["Better words."])))[-1].step is Step.READY


async def test_empty_document_is_one_without_passages(world: World) -> None:
    base = await world.base(with_vectors=True)
    last = (await world.add(base, "a.txt", ""))[-1]
    assert (last.step, last.total) == (Step.READY, 0)


async def test_zero_in_a_document_is_no_trouble(world: World) -> None:
    base = await world.base(with_vectors=True)
    await world.add(base, "a.txt", "before\0after \U0001f642 words")
    assert await world.texts("words") == ["before\ufffdafter \U0001f642 words"]


async def test_base_that_is_gone_and_metadata_that_will_not_do_are_told(world: World) -> None:
    base = await world.base()
    with pytest.raises(InvalidArgument, match="metadata"):
        await world.add(base, "a.txt", "words", metadata_json='{"deep": {"er": 1}}')
    await world.stores.catalogue.delete_item(base.KIND, base.id)
    with pytest.raises(NotFound, match="'docs'"):
        await world.add(base, "a.txt", "words")


async def test_removed_document_is_not_found_any_more(world: World) -> None:
    base = await world.base()
    await world.add(base, "a.txt", "Some words.")
    assert await world.stores.knowledge.remove_document(base.id, "a.txt")
    assert await world.texts("words") == []
