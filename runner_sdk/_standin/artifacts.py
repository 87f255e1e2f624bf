"""Artifacts of the stand-in host: bytes in memory."""

import hashlib
import time
import uuid
from collections.abc import Iterator

from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import types_pb2

from runner_sdk._standin.active_run import ActiveRun
from runner_sdk._standin.fields import check_fields, check_range
from runner_sdk._standin.refusals import invalid, not_found

_CHUNK_BYTES = 256 * 1024
_RANGE_BYTES = 1024 * 1024


class StandInArtifacts:
    """Artifacts by id, all of the one conversation."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.refs: dict[str, types_pb2.ArtifactRef] = {}

    def add(self, content: bytes, header: api.ArtifactHeader) -> types_pb2.ArtifactRef:
        """Stores bytes and returns their reference."""
        ref = types_pb2.ArtifactRef(
            artifact_id=str(uuid.uuid4()),
            type=header.type,
            mime_type=header.mime_type,
            name=header.name,
            summary=header.summary,
            size_bytes=len(content),
            sha256=hashlib.sha256(content).digest(),
            permissions=[
                types_pb2.ARTIFACT_PERMISSION_METADATA,
                types_pb2.ARTIFACT_PERMISSION_READ,
            ],
        )
        if header.HasField("expires_at"):
            ref.expires_at.CopyFrom(header.expires_at)
        self.contents[ref.artifact_id], self.refs[ref.artifact_id] = content, ref
        return ref

    def metadata(
        self, _: ActiveRun, request: api.GetArtifactMetadataRequest
    ) -> api.GetArtifactMetadataResponse:
        """Describes an artifact."""
        self._content(request.artifact_id)
        return api.GetArtifactMetadataResponse(artifact=self.refs[request.artifact_id])

    def read(self, _: ActiveRun, request: api.ReadArtifactRequest) -> api.ReadArtifactResponse:
        """Reads one range."""
        content = self._content(request.artifact_id)
        length = request.length if request.HasField("length") else _RANGE_BYTES
        check_range(length)
        data = content[request.offset : request.offset + length]
        return api.ReadArtifactResponse(data=data, size_bytes=len(content))

    def stream(
        self, _: ActiveRun, request: api.StreamArtifactRequest
    ) -> Iterator[api.StreamArtifactResponse]:
        """Reads an artifact in chunks."""
        content = self._content(request.artifact_id)
        return (
            api.StreamArtifactResponse(data=content[start : start + _CHUNK_BYTES])
            for start in range(request.offset, len(content), _CHUNK_BYTES)
        )

    def create(
        self, _: ActiveRun, requests: list[api.CreateArtifactRequest]
    ) -> api.CreateArtifactResponse:
        """Stores an artifact whose size and digest are those of its header."""
        if not requests or requests[0].WhichOneof("item") != "header":
            raise invalid("item", "the first message must be the header")
        header, content = requests[0].header, bytearray()
        for request in requests[1:]:
            if request.WhichOneof("item") != "chunk":
                raise invalid("item", "only the first message may be the header")
            check_fields(request)
            content += request.chunk
        _check_header(header, bytes(content))
        return api.CreateArtifactResponse(artifact=self.add(bytes(content), header))

    def _content(self, artifact_id: str) -> bytes:
        content = self.contents.get(artifact_id)
        if content is None or self._is_expired(artifact_id):
            raise not_found("artifact", artifact_id)
        return content

    def _is_expired(self, artifact_id: str) -> bool:
        ref = self.refs[artifact_id]
        return ref.HasField("expires_at") and ref.expires_at.ToMilliseconds() / 1000 <= time.time()


def _check_header(header: api.ArtifactHeader, content: bytes) -> None:
    if not 1 <= len(header.type.encode()) <= 100:
        raise invalid("header.type", f"must have 1 to 100 bytes, has {len(header.type.encode())}")
    if header.HasField("size_bytes") and header.size_bytes != len(content):
        raise invalid(
            "header.size_bytes", f"{header.size_bytes} were announced and {len(content)} came"
        )
    if header.HasField("sha256") and header.sha256 != hashlib.sha256(content).digest():
        raise invalid("header.sha256", "is not the digest of the bytes that came")
