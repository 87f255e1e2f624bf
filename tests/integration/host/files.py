"""Files of callers and of runs: stored and read over the wire."""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
from google.protobuf import json_format
from runmesh.v1 import event_pb2, gateway_pb2, host_api_pb2, types_pb2

from tests.integration.host.calls import (
    END,
    Answer,
    Caller,
    Metadata,
    collect,
    collect_until,
    say,
    scripted,
)

CHUNK_BYTES = 64 * 1024


def header(**fields: Any) -> host_api_pb2.ArtifactHeader:
    """What is said of a file before its bytes."""
    return host_api_pb2.ArtifactHeader(**({"type": "file", "name": "a.bin"} | fields))


def pieces(data: bytes, size: int = CHUNK_BYTES) -> list[bytes]:
    """Bytes as chunks."""
    return [data[at : at + size] for at in range(0, len(data), size)]


async def upload(
    caller: Caller, chunks: Iterable[bytes] | AsyncIterator[bytes], **fields: Any
) -> types_pb2.ArtifactRef:
    """Stores a file as a caller."""

    async def requests() -> AsyncIterator[gateway_pb2.GatewayServiceCreateArtifactRequest]:
        yield gateway_pb2.GatewayServiceCreateArtifactRequest(header=header(**fields))
        async for chunk in _each(chunks):
            yield gateway_pb2.GatewayServiceCreateArtifactRequest(chunk=chunk)

    answer: gateway_pb2.GatewayServiceCreateArtifactResponse = await _answer(
        lambda: caller.gateway.CreateArtifact(requests(), metadata=caller.metadata), chunks
    )
    return answer.artifact


async def download(caller: Caller, artifact_id: str, offset: int = 0) -> bytes:
    """Reads a file as a caller."""
    request = gateway_pb2.GatewayServiceReadArtifactRequest(artifact_id=artifact_id, offset=offset)
    call = caller.gateway.ReadArtifact(request, metadata=caller.metadata)
    return b"".join([response.data async for response in call])


async def _answer(call: Callable[[], Any], chunks: object) -> Any:
    """Makes an upload, again where gRPC's client loses its status.

    It does when a call is refused while it sends: then it knows only that it could not send.
    """
    for _ in range(20):
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            is_lost = "Internal error from Core" in (error.details() or "")
            if not is_lost or isinstance(chunks, AsyncIterator):
                raise
    raise AssertionError("the status of an upload was lost again and again")


async def _each(chunks: Iterable[bytes] | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(chunks, AsyncIterator):
        async for chunk in chunks:
            yield chunk
    else:
        for chunk in chunks:
            yield chunk


@dataclass(slots=True)
class FilingRun:
    """A run that waits, and calls HostAPI as its runner would.

    Attributes:
        caller: Has the stubs.
        metadata: The run's two tokens.
        heard: The input that its runner was given.
        answer: What it said so far.
        call: Its stream.
        go: The file that lets it go on.
    """

    caller: Caller
    metadata: Metadata
    heard: event_pb2.EventInput
    answer: Answer
    call: Any
    go: Path

    async def create(
        self, chunks: Iterable[bytes] | AsyncIterator[bytes], **fields: Any
    ) -> types_pb2.ArtifactRef:
        """Stores an artifact."""

        async def requests() -> AsyncIterator[host_api_pb2.CreateArtifactRequest]:
            yield host_api_pb2.CreateArtifactRequest(header=header(**fields))
            async for chunk in _each(chunks):
                yield host_api_pb2.CreateArtifactRequest(chunk=chunk)

        answer: host_api_pb2.CreateArtifactResponse = await _answer(
            lambda: self.caller.host_api.CreateArtifact(requests(), metadata=self.metadata), chunks
        )
        return answer.artifact

    async def describe(self, artifact_id: str) -> types_pb2.ArtifactRef:
        """Asks about an artifact."""
        request = host_api_pb2.GetArtifactMetadataRequest(artifact_id=artifact_id)
        response = await self.caller.host_api.GetArtifactMetadata(request, metadata=self.metadata)
        return response.artifact

    async def read(self, artifact_id: str, **fields: Any) -> host_api_pb2.ReadArtifactResponse:
        """Reads a range."""
        request = host_api_pb2.ReadArtifactRequest(artifact_id=artifact_id, **fields)
        return await self.caller.host_api.ReadArtifact(request, metadata=self.metadata)

    async def stream(self, artifact_id: str, offset: int = 0) -> bytes:
        """Reads all of it from an offset on."""
        request = host_api_pb2.StreamArtifactRequest(artifact_id=artifact_id, offset=offset)
        call = self.caller.host_api.StreamArtifact(request, metadata=self.metadata)
        return b"".join([response.data async for response in call])

    async def end(self) -> Answer:
        """Lets it go on to its end, and returns all that it said."""
        self.go.touch()
        return await collect(self.call, self.answer)


@asynccontextmanager
async def filing_run(
    caller: Caller, go: Path, *steps: dict[str, Any], **fields: Any
) -> AsyncIterator[FilingRun]:
    """A run of the agent `filing` that waits, then does the steps and ends well."""
    first = ({"tell": "access"}, say("\n"), {"tell": "input"}, say("\n"), {"await": str(go)})
    event = scripted(*first, *steps, END, **({"text": "look"} | fields))
    call = caller.open(event, "filing")
    answer = await collect_until(call, lambda so_far: so_far.shown.count("\n") == 2)
    access, heard, _ = answer.shown.split("\n")
    tokens = json.loads(access)
    metadata = (
        ("authorization", f"Bearer {tokens['runToken']}"),
        ("runmesh-instance", tokens["instanceToken"]),
    )
    said = json_format.Parse(heard, event_pb2.EventInput())
    try:
        yield FilingRun(caller, metadata, said, answer, call, go)
    finally:
        go.touch()  # noqa: ASYNC240 - it takes microseconds
