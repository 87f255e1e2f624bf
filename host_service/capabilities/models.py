"""Models that runs were given."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from runmesh.v1 import host_api_pb2

from host_service.authorization.tokens import RunAccess
from host_service.errors import NotFound, NotImplementedHere


class Models:
    """Finds the model that a call names among those of the run.

    This host speaks to no provider: a call for a model that the run has is NOT_IMPLEMENTED.
    """

    async def invoke(
        self, access: RunAccess, request: host_api_pb2.InvokeModelRequest
    ) -> host_api_pb2.InvokeModelResponse:
        """Ask a model once."""
        _find(access, request.model_id)
        raise NotImplementedHere("HostAPIService.InvokeModel")

    def stream(
        self, access: RunAccess, request: host_api_pb2.StreamModelRequest
    ) -> AsyncGenerator[host_api_pb2.StreamModelResponse, None]:
        """Ask a model and yield its answer."""
        _find(access, request.model_id)
        raise NotImplementedHere("HostAPIService.StreamModel")

    async def rerank(
        self, access: RunAccess, request: host_api_pb2.RerankDocumentsRequest
    ) -> host_api_pb2.RerankDocumentsResponse:
        """Order documents."""
        _find(access, request.model_id)
        raise NotImplementedHere("HostAPIService.RerankDocuments")

    async def embed(
        self, access: RunAccess, request: host_api_pb2.EmbedTextsRequest
    ) -> host_api_pb2.EmbedTextsResponse:
        """Turn texts into vectors."""
        _find(access, request.model_id)
        raise NotImplementedHere("HostAPIService.EmbedTexts")


def _find(access: RunAccess, model_id: str) -> None:
    if model_id not in access.snapshot.models:
        raise NotFound("model", model_id)
