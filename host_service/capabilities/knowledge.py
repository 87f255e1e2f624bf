"""Knowledge bases that runs were given."""

from __future__ import annotations

from runmesh.v1 import host_api_pb2

from host_service.authorization.tokens import RunAccess
from host_service.errors import NotFound, NotImplementedHere


class Knowledge:
    """Finds the knowledge bases that a call names among those of the run.

    This host searches none: a call for those that the run has is NOT_IMPLEMENTED.
    """

    async def list(
        self,
        access: RunAccess,  # noqa: ARG002 - every capability's method takes both
        request: host_api_pb2.ListKnowledgeBasesRequest,  # noqa: ARG002
    ) -> host_api_pb2.ListKnowledgeBasesResponse:
        """List the knowledge bases of the run."""
        raise NotImplementedHere("HostAPIService.ListKnowledgeBases")

    async def retrieve(
        self, access: RunAccess, request: host_api_pb2.RetrieveKnowledgeRequest
    ) -> host_api_pb2.RetrieveKnowledgeResponse:
        """Search knowledge bases."""
        for each in request.knowledge_base_ids:
            if each not in access.snapshot.knowledge_bases:
                raise NotFound("knowledge base", each)
        raise NotImplementedHere("HostAPIService.RetrieveKnowledge")
