"""Taking files in: a header, then chunks, never all of it in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from runmesh.v1 import gateway_pb2, host_api_pb2

from host_service.errors import FieldFault, InvalidArgument, PayloadTooLarge
from host_service.identity import new_id
from host_service.limits import Limits
from stores.artifacts import Artifacts
from stores.errors import ContentMismatch, ContentTooLarge, InvalidRecord
from stores.records import ArtifactHeader, ArtifactRecord

UploadRequest = host_api_pb2.CreateArtifactRequest | gateway_pb2.GatewayServiceCreateArtifactRequest

_HEADER_FIRST = "a header in the first message, and only there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose a file is.

    Attributes:
        workspace: Its workspace, or empty.
        bot: Its bot, or empty.
        conversation_key: The conversation it belongs to, or empty.
        run_id: The run that makes it, if one does.
    """

    workspace: str
    bot: str
    conversation_key: str = ""
    run_id: str | None = None


class Uploads:
    """Stores files that come in as streams of checked requests.

    Args:
        artifacts: Where they are kept.
        limits: How large a file may be.
        clock: Tells when one came.
    """

    def __init__(
        self, *, artifacts: Artifacts, limits: Limits, clock: Callable[[], datetime]
    ) -> None:
        self._artifacts = artifacts
        self._limits = limits
        self._clock = clock

    def is_chunk(self, request: UploadRequest) -> bool:
        """Return whether a request is a chunk that breaks no rule."""
        return (
            request.WhichOneof("item") == "chunk" and len(request.chunk) <= self._limits.chunk_bytes
        )

    async def take_in(self, requests: AsyncIterator[UploadRequest], owner: Owner) -> ArtifactRecord:
        """Store one file; when this raises, nothing of it is kept.

        Raises:
            InvalidArgument: The first message has no header or a later one has, a field of the
                header breaks its rule, or size or digest are not those of the bytes.
            PayloadTooLarge: It is larger than an artifact may be; told with the first byte beyond.
        """
        header = await self._header(requests)
        chunks = _Chunks(requests)
        try:
            return await self._artifacts.write(
                self._stored_header(header, owner),
                chunks.read(),
                size_bytes=header.size_bytes if header.HasField("size_bytes") else None,
                sha256=header.sha256 if header.HasField("sha256") else None,
                most_bytes=self._limits.artifact_bytes,
            )
        except InvalidRecord as error:
            raise InvalidArgument([_field_fault(header, error)]) from error
        except ContentTooLarge as error:
            raise self._too_large(chunks.size_bytes) from error
        except ContentMismatch as error:
            rule = f"the bytes' own, {error.actual}"
            fault = FieldFault(f"header.{error.field}", rule, error.declared)
            raise InvalidArgument([fault]) from error

    async def _header(self, requests: AsyncIterator[UploadRequest]) -> host_api_pb2.ArtifactHeader:
        async for request in requests:
            if not request.HasField("header"):
                raise InvalidArgument([FieldFault("item", _HEADER_FIRST, "a chunk")])
            if request.header.size_bytes > self._limits.artifact_bytes:
                raise self._too_large(request.header.size_bytes)
            return request.header
        raise InvalidArgument([FieldFault("item", _HEADER_FIRST, "no message")])

    def _stored_header(self, header: host_api_pb2.ArtifactHeader, owner: Owner) -> ArtifactHeader:
        return ArtifactHeader(
            artifact_id=new_id(),
            workspace=owner.workspace,
            bot=owner.bot,
            conversation_key=owner.conversation_key,
            run_id=owner.run_id,
            type=header.type,
            mime_type=header.mime_type,
            name=header.name,
            summary=header.summary,
            created_at=self._clock(),
            expires_at=header.expires_at.ToDatetime(UTC) if header.HasField("expires_at") else None,
        )

    def _too_large(self, size_bytes: int) -> PayloadTooLarge:
        return PayloadTooLarge(
            "the artifact", size_bytes=size_bytes, limit_bytes=self._limits.artifact_bytes
        )


class _Chunks:
    """The bytes behind a header.

    Attributes:
        size_bytes: How many came so far.
    """

    def __init__(self, requests: AsyncIterator[UploadRequest]) -> None:
        self._requests = requests
        self.size_bytes = 0

    async def read(self) -> AsyncIterator[bytes]:
        async for request in self._requests:
            if request.HasField("header"):
                raise InvalidArgument([FieldFault("item", _HEADER_FIRST, "another header")])
            self.size_bytes += len(request.chunk)
            yield request.chunk


def _field_fault(header: host_api_pb2.ArtifactHeader, error: InvalidRecord) -> FieldFault:
    value = getattr(header, error.field, "")
    got = f"a text of {len(value.encode())} bytes" if isinstance(value, str) else "another value"
    return FieldFault(f"header.{error.field}", error.rule, got)
