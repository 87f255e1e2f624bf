"""Tests of `host_service.capabilities.knowledge`: the knowledge bases that a run was given."""

from typing import Any

import pytest
from runmesh.v1 import host_api_pb2

from host_service.authorization.snapshot import Resources
from host_service.authorization.tokens import RunAccess, RunTokens
from host_service.capabilities.knowledge import Knowledge
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.errors import InvalidArgument, NotFound, NotImplementedHere
from host_service.limits import Limits
from host_service.pages import PageTokens
from tests.unit.capabilities.test_gate import rights

KNOWLEDGE = Knowledge(pages=PageTokens(limits=Limits()))


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


async def listed(access: RunAccess, **fields: Any) -> tuple[list[str], str]:
    request = host_api_pb2.ListKnowledgeBasesRequest(**fields)
    response = await KNOWLEDGE.list(access, request)
    ids = [each.knowledge_base_id for each in response.knowledge_bases]
    return ids, response.next_page_token


async def test_all_that_the_run_has_are_listed_page_by_page() -> None:
    access = a_run("a", "b", "c")
    first, token = await listed(access, page_size=2)
    assert (first, bool(token)) == (["a", "b"], True)
    assert await listed(access, page_size=2, page_token=token) == (["c"], "")
    assert await listed(access) == (["a", "b", "c"], "")
    assert await listed(a_run()) == ([], "")


async def test_name_is_the_id_where_there_is_none() -> None:
    response = await KNOWLEDGE.list(a_run("a"), host_api_pb2.ListKnowledgeBasesRequest())
    (base,) = response.knowledge_bases
    assert (base.name, base.description) == ("a", "about a")


async def test_page_token_is_good_for_its_run_alone() -> None:
    _, token = await listed(a_run("a", "b"), page_size=1)
    with pytest.raises(InvalidArgument, match="page_token"):
        await listed(a_run("a", "b", run_id="run-2"), page_size=1, page_token=token)


async def test_search_is_in_what_the_run_has_alone() -> None:
    async def search(access: RunAccess, *ids: str) -> int:
        request = host_api_pb2.RetrieveKnowledgeRequest(knowledge_base_ids=ids, query="q")
        return len((await KNOWLEDGE.retrieve(access, request)).hits)

    with pytest.raises(NotFound, match="'b'"):
        await search(a_run("a"), "a", "b")
    with pytest.raises(NotImplementedHere):
        await search(a_run("a"), "a")
    with pytest.raises(NotImplementedHere):
        await search(a_run("a"))
    # All that it was given is none.
    assert await search(a_run()) == 0
