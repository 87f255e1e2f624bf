"""Knowledge bases that runs were given."""

from __future__ import annotations

from runmesh.v1 import host_api_pb2

from host_service.authorization.tokens import RunAccess
from host_service.errors import NotFound, NotImplementedHere
from host_service.pages import PageTokens, page_of


class Knowledge:
    """Finds the knowledge bases that a call names among those of the run.

    This host searches none: to search those that the run has is NOT_IMPLEMENTED.

    Args:
        pages: Makes page tokens.
    """

    def __init__(self, *, pages: PageTokens) -> None:
        self._pages = pages

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
        """Search knowledge bases."""
        for each in request.knowledge_base_ids:
            if each not in access.snapshot.knowledge_bases:
                raise NotFound("knowledge base", each)
        if not access.snapshot.knowledge_bases:
            # All that the run was given is none.
            return host_api_pb2.RetrieveKnowledgeResponse()
        raise NotImplementedHere("HostAPIService.RetrieveKnowledge")
