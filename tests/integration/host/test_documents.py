"""Documents come in as streams of checked messages, and are refused with a reason."""

from collections.abc import Iterable

import grpc.aio
import pytest
from runmesh.admin.v1 import admin_pb2, knowledge_pb2

from tests.integration.host.calls import Caller

ADDED = knowledge_pb2.AddDocumentRequest
INFO = knowledge_pb2.DocumentInfo(knowledge_base_id="papers", document_id="a.txt")


@pytest.fixture
async def papers(caller: Caller) -> Caller:
    """A caller of a host with the empty knowledge base `papers`."""
    await caller.admin.DeleteKnowledgeBase(
        admin_pb2.DeleteKnowledgeBaseRequest(knowledge_base_id="papers"), metadata=caller.metadata
    )
    base = admin_pb2.KnowledgeBase(id="papers")
    await caller.admin.Apply(
        admin_pb2.ApplyRequest(knowledge_bases=[base]), metadata=caller.metadata
    )
    return caller


async def add(
    caller: Caller, requests: Iterable[knowledge_pb2.AddDocumentRequest]
) -> list[knowledge_pb2.AddDocumentResponse]:
    call = caller.admin.AddDocument(iter(requests), metadata=caller.metadata)
    return [each async for each in call]


async def refused(caller: Caller, *requests: knowledge_pb2.AddDocumentRequest) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await add(caller, requests)
    return raised.value.details() or ""


async def test_steps_are_told_in_order_with_the_document_at_the_end(papers: Caller) -> None:
    pieces = [ADDED(info=INFO), ADDED(chunk=b"Some "), ADDED(chunk=b"words.")]
    steps = await add(papers, pieces)
    assert [each.step for each in steps] == [
        knowledge_pb2.DOCUMENT_STEP_RECEIVED,
        knowledge_pb2.DOCUMENT_STEP_CUT,
        knowledge_pb2.DOCUMENT_STEP_STORED,
        knowledge_pb2.DOCUMENT_STEP_READY,
    ]
    assert steps[0].done == 11
    assert (steps[-1].document.name, steps[-1].document.passages) == ("a.txt", 1)
    (again,) = (await add(papers, pieces))[1:]
    assert again.step == knowledge_pb2.DOCUMENT_STEP_UNCHANGED


async def test_what_breaks_a_rule_is_refused_by_its_name(papers: Caller) -> None:
    assert "in the first message" in await refused(papers)
    assert "in the first message" in await refused(papers, ADDED(chunk=b"x"))
    assert "in the first message" in await refused(papers, ADDED(info=INFO), ADDED(info=INFO))
    unnamed = knowledge_pb2.DocumentInfo(knowledge_base_id="papers")
    assert "info.document_id: required" in await refused(papers, ADDED(info=unnamed))
    wide = knowledge_pb2.DocumentInfo(
        knowledge_base_id="papers", document_id="a", metadata_json="[]"
    )
    assert "metadata_json" in await refused(papers, ADDED(info=wide))
    elsewhere = knowledge_pb2.DocumentInfo(knowledge_base_id="none", document_id="a")
    assert "no knowledge base 'none'" in await refused(papers, ADDED(info=elsewhere))
    picture = await refused(papers, ADDED(info=INFO), ADDED(chunk=b"\x89PNG"))
    assert (
        picture
        == "'a.txt' cannot be read: it is a picture: text, Markdown, HTML and PDF can be read"
    )


async def test_document_that_is_too_large_is_refused_with_both_sizes(papers: Caller) -> None:
    large = [ADDED(info=INFO), *[ADDED(chunk=bytes(1024 * 1024))] * 33]
    told = await refused(papers, *large)
    assert told.endswith(f"(limits.document_bytes) has {33 << 20} bytes; the limit is {32 << 20}")


async def test_removed_base_takes_its_documents_with_it(papers: Caller) -> None:
    await add(papers, [ADDED(info=INFO), ADDED(chunk=b"Some words.")])
    await papers.admin.DeleteKnowledgeBase(
        admin_pb2.DeleteKnowledgeBaseRequest(knowledge_base_id="papers"), metadata=papers.metadata
    )
    await papers.admin.Apply(
        admin_pb2.ApplyRequest(knowledge_bases=[admin_pb2.KnowledgeBase(id="papers")]),
        metadata=papers.metadata,
    )
    counted = await papers.admin.CountDocuments(
        knowledge_pb2.CountDocumentsRequest(knowledge_base_id="papers"), metadata=papers.metadata
    )
    assert (counted.documents, counted.passages) == (0, 0)
