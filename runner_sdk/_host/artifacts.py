"""Artifacts: bytes that the host keeps, by reference."""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from runmesh.v1 import host_api_pb2 as api
from runmesh.v1.types_pb2 import ArtifactRef

from runner_sdk._host.artifact_file import ArtifactFile
from runner_sdk._host.calls import HostCalls
from runner_sdk._host.requests import make
from runner_sdk._host.upload import Content, Upload


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Bytes that the host keeps: `ctx.host.artifacts`.

    A run sees the artifacts of its conversation, those it created, and the files among its
    resources. Needs the permissions `artifacts: [metadata]`, `[read]` and `[create]`. Wherever an
    artifact is named, its id or its reference will do.
    """

    calls: HostCalls

    async def metadata(self, artifact: str | ArtifactRef) -> ArtifactRef:
        """Reads the reference of an artifact: type, name, size, digest, summary.

        Raises:
            NotFound: There is none, it has expired, or it is not this run's to see.
        """
        request = make(api.GetArtifactMetadataRequest, artifact_id=artifact_id_of(artifact))
        response: api.GetArtifactMetadataResponse = await self.calls.call(
            "GetArtifactMetadata", request
        )
        return response.artifact

    async def read_range(
        self, artifact: str | ArtifactRef, offset: int = 0, length: int | None = None
    ) -> api.ReadArtifactResponse:
        """Reads one range: `data`, and `size_bytes` of the whole.

        Args:
            artifact: Which.
            offset: The first byte, from 0. At or past the end the answer is empty.
            length: How many bytes, at most 1 MiB. None: 1 MiB, or what there is.

        Raises:
            NotFound: As for `metadata`.
            PayloadTooLarge: More than 1 MiB was asked for.
        """
        request = make(
            api.ReadArtifactRequest,
            artifact_id=artifact_id_of(artifact),
            offset=offset,
            length=length,
        )
        response: api.ReadArtifactResponse = await self.calls.call("ReadArtifact", request)
        return response

    def open(self, artifact: str | ArtifactRef, *, offset: int = 0) -> ArtifactFile:
        """Opens an artifact of any size for reading; use it with `async with`.

        ::

            async with ctx.host.artifacts.open(ref) as file:
                print(file.size)
                async for chunk in file:
                    digest.update(chunk)

        Args:
            artifact: Which.
            offset: The first byte to read.
        """
        return ArtifactFile(self.calls, artifact_id_of(artifact), offset)

    async def create(
        self,
        content: Content,
        *,
        type: str = "file",
        name: str = "",
        mime_type: str = "",
        summary: str = "",
        expires_at: datetime | None = None,
        timeout_seconds: float | None = None,
    ) -> ArtifactRef:
        """Stores an artifact and returns its reference.

        Size and digest are checked on both sides. Content is sent as fast as the host takes it and
        never held as a whole; when the call is cancelled or fails, nothing is stored.

        Args:
            content: Bytes, the path of a file, or an async iterator of bytes.
            type: `image`, `file`, `voice`, `video`, or another word.
            name: A file name to show. For a path, by default its own.
            mime_type: Media type.
            summary: A sentence on what is in it.
            expires_at: When it may be removed, with a time zone. None: as the host's retention
                says.
            timeout_seconds: How long it may take, where that is less than the run may.

        Raises:
            PayloadTooLarge: It has more than 1 GiB.
            InvalidArgument: A file changed while it was sent.
            OSError: A file cannot be read.
        """
        if not name and isinstance(content, os.PathLike):
            name = Path(content).name
        header = make(
            api.ArtifactHeader, type=type, name=name, mime_type=mime_type, summary=summary
        )
        if expires_at is not None:
            header.expires_at.FromDatetime(_with_zone(expires_at))
        return await Upload(self.calls, header, content, timeout_seconds=timeout_seconds).send()


def artifact_id_of(artifact: str | ArtifactRef) -> str:
    """Returns the id of an artifact that is named by it, or by its reference."""
    return artifact if isinstance(artifact, str) else artifact.artifact_id


def _with_zone(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("expires_at: must have a time zone, such as datetime.UTC")
    return moment
