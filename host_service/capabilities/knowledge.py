"""Knowledge bases that runs were given."""

from __future__ import annotations

from runmesh.v1 import host_api_pb2

from host_service.authorization.tokens import RunAccess
from host_service.errors import NotFound
from host_service.knowledge.places import shown_metadata
from host_service.knowledge.retrieval import Retrieval
from host_service.pages import PageTokens, page_of
from stores.knowledge_records import KnowledgeHit

DEFAULT_HITS = 5


class Knowledge:
    """Searches the knowledge bases that a call names among those of the run.

    Args:
        pages: Makes page tokens.
        retrieval: Searches.
    """

    def __init__(self, *, pages: PageTokens, retrieval: Retrieval) -> None:
        self._pages = pages
        self._retrieval = retrieval

    async def list(
        self, access: RunAccess, request: host_api_pb2.ListKnowledgeBasesRequest
    ) -> host_api_pb2.ListKnowledgeBasesResponse:
        """List the knowledge bases of the run, as they were when its rights were frozen."""
        snapshot = access.snapshot
        bases = snapshot.resources.knowledge_bases
        page, cursor = page_of(
            bases,
            cursor=self._pages.read(request, within=snapshot.run_id),
            size=self._pages.size(request.page_size),
            keys=[base.id for base in bases],
        )
        return host_api_pb2.ListKnowledgeBasesResponse(
            knowledge_bases=[
                host_api_pb2.KnowledgeBase(
                    knowledge_base_id=base.id,
                    name=base.name or base.id,
                    description=base.description,
                )
                for base in page
            ],
            next_page_token=self._pages.issue(request, cursor, within=snapshot.run_id),
        )

    async def retrieve(
        self, access: RunAccess, request: host_api_pb2.RetrieveKnowledgeRequest
    ) -> host_api_pb2.RetrieveKnowledgeResponse:
        """Search knowledge bases; one that was removed since has nothing to be found."""
        granted = access.snapshot.knowledge_bases
        for each in request.knowledge_base_ids:
            if each not in granted:
                raise NotFound("knowledge base", each)
        # One that was disabled since stays the run's: its rights are those of its start.
        found = await self._retrieval.search(
            request.knowledge_base_ids or sorted(granted),
            request.query,
            top_k=request.top_k or DEFAULT_HITS,
            filters_json=request.filters_json if request.HasField("filters_json") else None,
        )
        return host_api_pb2.RetrieveKnowledgeResponse(hits=map(hit_message, found.hits))


def hit_message(hit: KnowledgeHit) -> host_api_pb2.KnowledgeHit:
    """Return a hit as the contract has it."""
    document, chunk = hit.document, hit.chunk
    return host_api_pb2.KnowledgeHit(
        knowledge_base_id=hit.knowledge_base_id,
        document_id=document.document_id,
        document_name=document.name or document.document_id,
        text=chunk.text,
        score=hit.score,
        position=chunk.position,
        metadata_json=shown_metadata(
            document.metadata_json,
            mime_type=document.mime_type,
            kept=chunk.heading,
        ),
    )
