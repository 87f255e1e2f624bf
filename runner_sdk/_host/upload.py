"""Sending an artifact: a header, then chunks, as fast as the host takes them.

A chunk is written when gRPC has room for it, and the next one is made only then: the file, the
iterator and the host's own store set the pace, and one chunk at a time is in memory.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from grpc.aio import AioRpcError
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1.types_pb2 import ArtifactRef

from runner_sdk._host.calls import HostCalls
from runner_sdk._host.request_writer import RequestWriter
from runner_sdk._status import host_call_error
from runner_sdk.errors import RuntimeFailure

Buffer: TypeAlias = bytes | bytearray | memoryview
Content: TypeAlias = Buffer | os.PathLike[str] | AsyncIterable[bytes]

CHUNK_BYTES = 512 * 1024
"""How large chunks are that the SDK cuts; the contract allows 1 MiB."""

_METHOD = "CreateArtifact"


class Upload:
    """One artifact on its way to the host."""

    def __init__(
        self,
        calls: HostCalls,
        header: api.ArtifactHeader,
        content: Content,
        *,
        timeout_seconds: float | None,
    ) -> None:
        self._calls = calls
        self._header = header
        self._content = content
        self._timeout_seconds = timeout_seconds
        self._size = 0
        self._digest = hashlib.sha256()

    async def send(self) -> ArtifactRef:
        """Sends it and returns its reference.

        Raises:
            HostCallError: The host refused it, or could not be reached.
            RuntimeFailure: The host stored other bytes than were sent.
        """
        await self._announce()
        call = self._calls.upload(_METHOD, timeout_seconds=self._timeout_seconds)
        try:
            async with aclosing(self._chunks()) as chunks:
                await self._write_all(RequestWriter(call), chunks)
            response = await call
        except AioRpcError as error:
            raise host_call_error(_METHOD, error) from error
        finally:
            # Without effect on a call that has ended.
            call.cancel()
        return self._checked(response.artifact)

    async def _announce(self) -> None:
        """Puts size and digest into the header, where they can be known before."""
        match self._content:
            case bytes() | bytearray() | memoryview():
                size, digest = await asyncio.to_thread(_measure_buffer, self._content)
            case os.PathLike():
                size, digest = await asyncio.to_thread(_measure_file, Path(self._content))
            case AsyncIterable():
                return
            case _:
                raise TypeError(
                    "content: must be bytes, a path or an async iterator of bytes, "
                    f"is {type(self._content).__name__}"
                )
        self._header.size_bytes, self._header.sha256 = size, digest

    async def _write_all(self, writer: RequestWriter, chunks: AsyncIterator[bytes]) -> None:
        if not await writer.write(api.CreateArtifactRequest(header=self._header)):
            return
        announced = self._header.HasField("sha256")
        async for chunk in chunks:
            self._size += len(chunk)
            if not announced:
                self._digest.update(chunk)
            if not await writer.write(api.CreateArtifactRequest(chunk=chunk)):
                return
        await writer.end()

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        match self._content:
            case bytes() | bytearray() | memoryview():
                for chunk in _cut(self._content):
                    yield chunk
            case os.PathLike():
                with await asyncio.to_thread(Path(self._content).open, "rb") as file:
                    while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                        yield chunk
            case _:
                async with _closing(self._content) as pieces:
                    async for piece in pieces:
                        for chunk in _cut(piece):
                            yield chunk

    def _checked(self, artifact: ArtifactRef) -> ArtifactRef:
        """Returns what the host stored, if that is what was sent."""
        header = self._header
        digest = header.sha256 if header.HasField("sha256") else self._digest.digest()
        if artifact.size_bytes != self._size or artifact.sha256 != digest:
            raise RuntimeFailure(
                method=_METHOD,
                reason="RUNTIME_ERROR",
                message=f"{self._size} bytes were sent, and the host stored "
                f"{artifact.size_bytes}, or other ones",
                metadata={"resource": artifact.artifact_id},
            )
        return artifact


@asynccontextmanager
async def _closing(pieces: AsyncIterable[bytes]) -> AsyncIterator[AsyncIterable[bytes]]:
    """Closes a generator of the author's where it stands, when the upload ends before it."""
    try:
        yield pieces
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


def _cut(buffer: Buffer) -> Iterator[bytes]:
    if isinstance(buffer, bytes) and 0 < len(buffer) <= CHUNK_BYTES:
        yield buffer
        return
    view = memoryview(buffer).cast("B")
    for start in range(0, len(view), CHUNK_BYTES):
        yield bytes(view[start : start + CHUNK_BYTES])


def _measure_buffer(buffer: Buffer) -> tuple[int, bytes]:
    return memoryview(buffer).nbytes, hashlib.sha256(buffer).digest()


def _measure_file(path: Path) -> tuple[int, bytes]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        return file.tell(), digest
