"""Files of callers: in for events, out of runs.

An upload belongs to the workspace and bot that the caller's key is limited to, or to none where it
is not limited, and to no conversation: that of the first event that refers to it takes it over. A
caller reads whatever lies within its reach.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from runmesh.v1 import gateway_pb2

from host_service.authorization.callers import Caller
from host_service.capabilities.chunks import cut
from host_service.capabilities.uploads import Owner, Uploads
from host_service.errors import NotFound
from host_service.limits import Limits
from host_service.requests import RequestCheck
from host_service.runs.artifact_refs import artifact_ref
from stores.artifacts import Artifacts


class CallerFiles:
    """Stores and reads files for callers.

    Args:
        artifacts: Where they are kept.
        uploads: Takes new ones in.
        check: Refuses bad requests.
        limits: How much goes into one message.
    """

    def __init__(
        self, *, artifacts: Artifacts, uploads: Uploads, check: RequestCheck, limits: Limits
    ) -> None:
        self._artifacts = artifacts
        self._uploads = uploads
        self._check = check
        self._limits = limits

    async def create(
        self,
        caller: Caller,
        requests: AsyncIterator[gateway_pb2.GatewayServiceCreateArtifactRequest],
    ) -> gateway_pb2.GatewayServiceCreateArtifactResponse:
        """Store a file for an event to refer to.

        Raises:
            InvalidArgument, PayloadTooLarge: As `Uploads.take_in` has it.
        """
        owner = Owner(workspace=caller.workspace or "", bot=caller.bot or "")
        record = await self._uploads.take_in(self._checked(requests), owner)
        return gateway_pb2.GatewayServiceCreateArtifactResponse(artifact=artifact_ref(record))

    async def _checked(
        self, requests: AsyncIterator[gateway_pb2.GatewayServiceCreateArtifactRequest]
    ) -> AsyncIterator[gateway_pb2.GatewayServiceCreateArtifactRequest]:
        async for request in requests:
            if not self._uploads.is_chunk(request):
                self._check.require(request)
            yield request

    async def read(
        self, caller: Caller, request: gateway_pb2.GatewayServiceReadArtifactRequest
    ) -> AsyncGenerator[gateway_pb2.GatewayServiceReadArtifactResponse, None]:
        """Yield a file from an offset on, in chunks.

        Raises:
            NotFound: There is none that this caller may see.
        """
        opened = await self._artifacts.open(request.artifact_id, offset=request.offset)
        if opened is None or not caller.reaches(workspace=opened[0].workspace, bot=opened[0].bot):
            raise NotFound("artifact", request.artifact_id)
        async for chunk in cut(opened[1], self._limits.chunk_bytes):
            yield gateway_pb2.GatewayServiceReadArtifactResponse(data=chunk)
