"""Tests of `host_service.capabilities.knowledge`: the knowledge bases that a run was given."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from runmesh.v1 import host_api_pb2

from host_service.authorization.snapshot import Resources
from host_service.authorization.tokens import RunAccess, RunTokens
from host_service.capabilities.knowledge import Knowledge
from host_service.catalogue.documents import item_of
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.catalogue.shelf import Shelf
from host_service.errors import InvalidArgument, NotFound
from host_service.knowledge.retrieval import Retrieval
from host_service.knowledge.vectors import Embedding
from host_service.limits import Limits
from host_service.pages import PageTokens
from stores import Stores, open_stores
from stores.knowledge_records import DocumentHeader, NewChunk
from tests.unit.capabilities.test_gate import rights

BASES = [KnowledgeBase(id="a"), KnowledgeBase(id="b", enabled=False)]
LIMITS = Limits()


class Silent:
    """Has no vectors to give: no knowledge base here has a model."""

    async def embed(self, model_id: str, texts: Sequence[str]) -> list[list[float]]:
        raise AssertionError(f"nobody asks {model_id} for {texts}")


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    """A database with two knowledge bases, one document in each."""
    opened = await open_stores(f"sqlite:///{tmp_path}/stores.db")
    for base in BASES:
        await opened.catalogue.apply([], [], [item_of(base)])
        header = DocumentHeader(
            knowledge_base_id=base.id, document_id="d", name="", source="", sha256=b"d" * 32
        )
        text = f"words of {base.id}"
        await opened.knowledge.put_document(
            header, [NewChunk(position=0, length=len(text), text=text)]
        )
    yield opened
    await opened.close()


@pytest.fixture
def knowledge(stores: Stores) -> Knowledge:
    """What is tested."""
    retrieval = Retrieval(
        store=stores.knowledge,
        embedding=Embedding(embedder=Silent()),
        shelf=lambda: Shelf.of(map(item_of, BASES)),
        limits=LIMITS,
    )
    return Knowledge(pages=PageTokens(limits=LIMITS), retrieval=retrieval)


def a_run(*ids: str, run_id: str = "run-1") -> RunAccess:
    tokens = RunTokens(limits=Limits())
    bases = tuple(KnowledgeBase(id=each, description=f"about {each}") for each in ids)
    snapshot = rights(
        run_id=run_id,
        knowledge_bases=frozenset(ids),
        resources=Resources(knowledge_bases=bases),
    )
    token = tokens.issue(snapshot=snapshot, instance_token="i")
    return tokens.check(authorization=f"Bearer {token}", instance_token="i")


async def listed(knowledge: Knowledge, access: RunAccess, **fields: Any) -> tuple[list[str], str]:
    request = host_api_pb2.ListKnowledgeBasesRequest(**fields)
    response = await knowledge.list(access, request)
    ids = [each.knowledge_base_id for each in response.knowledge_bases]
    return ids, response.next_page_token


async def test_all_that_the_run_has_are_listed_page_by_page(knowledge: Knowledge) -> None:
    access = a_run("a", "b", "c")
    first, token = await listed(knowledge, access, page_size=2)
    assert (first, bool(token)) == (["a", "b"], True)
    assert await listed(knowledge, access, page_size=2, page_token=token) == (["c"], "")
    assert await listed(knowledge, access) == (["a", "b", "c"], "")
    assert await listed(knowledge, a_run()) == ([], "")


async def test_name_is_the_id_where_there_is_none(knowledge: Knowledge) -> None:
    response = await knowledge.list(a_run("a"), host_api_pb2.ListKnowledgeBasesRequest())
    (base,) = response.knowledge_bases
    assert (base.name, base.description) == ("a", "about a")


async def test_page_token_is_good_for_its_run_alone(knowledge: Knowledge) -> None:
    _, token = await listed(knowledge, a_run("a", "b"), page_size=1)
    with pytest.raises(InvalidArgument, match="page_token"):
        await listed(knowledge, a_run("a", "b", run_id="run-2"), page_size=1, page_token=token)


async def test_search_is_in_what_the_run_has_alone(knowledge: Knowledge) -> None:
    async def search(access: RunAccess, *ids: str) -> list[str]:
        request = host_api_pb2.RetrieveKnowledgeRequest(knowledge_base_ids=ids, query="words")
        return [hit.text for hit in (await knowledge.retrieve(access, request)).hits]

    with pytest.raises(NotFound, match="'b'"):
        await search(a_run("a"), "a", "b")
    assert await search(a_run("a")) == ["words of a"]
    assert await search(a_run("a", "b"), "a") == ["words of a"]
    # All that it was given is none.
    assert await search(a_run()) == []


async def test_base_is_searched_that_was_disabled_since_and_not_one_that_is_gone(
    knowledge: Knowledge,
) -> None:
    request = host_api_pb2.RetrieveKnowledgeRequest(query="words")
    response = await knowledge.retrieve(a_run("b", "gone"), request)
    assert [hit.text for hit in response.hits] == ["words of b"]
