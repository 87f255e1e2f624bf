"""Artifacts: those of a run's conversation, those it created, and those it was given."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from runmesh.v1 import host_api_pb2

from host_service.authorization.tokens import RunAccess
from host_service.capabilities.chunks import cut
from host_service.capabilities.uploads import Owner, Uploads
from host_service.errors import NotFound, PayloadTooLarge
from host_service.limits import Limits
from host_service.runs.artifact_refs import artifact_ref, hand_to_run
from stores import artifacts as store
from stores.records import ArtifactRecord


class Artifacts:
    """Describes, reads and stores artifacts for runs.

    An artifact that is not the run's to see is `NotFound`, as one that has expired is, or one that
    never was.

    Args:
        artifacts: Where they are kept.
        uploads: Takes new ones in.
        limits: How much is read at once.
    """

    def __init__(self, *, artifacts: store.Artifacts, uploads: Uploads, limits: Limits) -> None:
        self._artifacts = artifacts
        self._uploads = uploads
        self._limits = limits

    async def describe(
        self, access: RunAccess, request: host_api_pb2.GetArtifactMetadataRequest
    ) -> host_api_pb2.GetArtifactMetadataResponse:
        """Say what is known of an artifact."""
        record = await self._find(access, request.artifact_id)
        response = host_api_pb2.GetArtifactMetadataResponse(artifact=artifact_ref(record))
        hand_to_run(response, access.snapshot)
        return response

    async def read(
        self, access: RunAccess, request: host_api_pb2.ReadArtifactRequest
    ) -> host_api_pb2.ReadArtifactResponse:
        """Read one range of an artifact.

        Raises:
            PayloadTooLarge: The range is larger than one answer may be.
        """
        record = await self._find(access, request.artifact_id)
        limit = self._limits.range_bytes
        length = request.length if request.HasField("length") else limit
        if length > limit:
            raise PayloadTooLarge("the range", size_bytes=length, limit_bytes=limit)
        data = await self._artifacts.read(record.artifact_id, offset=request.offset, length=length)
        if data is None:
            raise NotFound("artifact", request.artifact_id)
        return host_api_pb2.ReadArtifactResponse(data=data, size_bytes=record.size_bytes)

    async def stream(
        self, access: RunAccess, request: host_api_pb2.StreamArtifactRequest
    ) -> AsyncGenerator[host_api_pb2.StreamArtifactResponse, None]:
        """Yield an artifact from an offset on, in chunks."""
        await self._find(access, request.artifact_id)
        opened = await self._artifacts.open(request.artifact_id, offset=request.offset)
        if opened is None:
            raise NotFound("artifact", request.artifact_id)
        async for chunk in cut(opened[1], self._limits.chunk_bytes):
            yield host_api_pb2.StreamArtifactResponse(data=chunk)

    async def create(
        self, access: RunAccess, requests: AsyncIterator[host_api_pb2.CreateArtifactRequest]
    ) -> host_api_pb2.CreateArtifactResponse:
        """Store an artifact that the run makes, in its conversation.

        Raises:
            InvalidArgument, PayloadTooLarge: As `Uploads.take_in` has it.
        """
        identity = access.snapshot.identity
        owner = Owner(
            workspace=identity.workspace,
            bot=identity.bot,
            conversation_key=identity.conversation_key,
            run_id=access.snapshot.run_id,
        )
        record = await self._uploads.take_in(requests, owner)
        response = host_api_pb2.CreateArtifactResponse(artifact=artifact_ref(record))
        hand_to_run(response, access.snapshot)
        return response

    def is_chunk(self, request: host_api_pb2.CreateArtifactRequest) -> bool:
        """Return whether a request is a chunk that breaks no rule."""
        return self._uploads.is_chunk(request)

    async def _find(self, access: RunAccess, artifact_id: str) -> ArtifactRecord:
        record = await self._artifacts.get(artifact_id)
        if record is None or not access.snapshot.sees(record):
            raise NotFound("artifact", artifact_id)
        return record
