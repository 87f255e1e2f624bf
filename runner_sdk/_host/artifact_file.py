"""An artifact that is open for reading: one range first, then a stream, as far as it is needed.

The first range tells the size and is all that small artifacts need. A stream that breaks off is
begun again by the next read, where the one before ended.
"""

from types import TracebackType
from typing import Self

from runmesh.v1 import host_api_pb2 as api

from runner_sdk._host.calls import HostCalls
from runner_sdk._host.requests import make
from runner_sdk._host.streams import HostStream
from runner_sdk.errors import HostUnavailable

_FIRST_RANGE_BYTES = 256 * 1024


class ArtifactFile:
    """An open artifact: `size`, `read`, `seek`, and chunks when it is iterated over.

    It holds one chunk, of at most 1 MiB, whatever the artifact's size. After HostUnavailable the
    next read goes on where this one ended.
    """

    def __init__(self, calls: HostCalls, artifact_id: str, offset: int) -> None:
        self._calls = calls
        self._artifact_id = artifact_id
        self._offset = offset
        self._size: int | None = None
        self._chunk = b""
        self._used = 0
        self._stream: HostStream[api.StreamArtifactResponse] | None = None

    @property
    def size(self) -> int:
        """The whole artifact's size in bytes."""
        if self._size is None:
            raise ValueError("the artifact is not open: async with artifacts.open(...) as file")
        return self._size

    @property
    def offset(self) -> int:
        """The byte that is read next, counted from 0."""
        return self._offset

    async def __aenter__(self) -> Self:
        """Opens it.

        Raises:
            NotFound: There is none, it has expired, or it is not this run's to see.
        """
        request = make(
            api.ReadArtifactRequest,
            artifact_id=self._artifact_id,
            offset=self._offset,
            length=_FIRST_RANGE_BYTES,
        )
        response: api.ReadArtifactResponse = await self._calls.call("ReadArtifact", request)
        self._size = response.size_bytes
        self._chunk = response.data
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it; what was not read is not sent any more."""
        self._drop()

    def __aiter__(self) -> Self:
        """Iterates over what was not read yet, in chunks of up to 1 MiB."""
        return self

    async def __anext__(self) -> bytes:
        """Returns the next chunk."""
        chunk = await self._next(None)
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def read(self, count: int = -1) -> bytes:
        """Reads so many bytes, fewer at the end; by default all that is left, into memory.

        Raises:
            HostUnavailable: The host broke off. What was read on the way is not lost: the next
                read begins where this one did.
        """
        begun = self._offset
        pieces: list[bytes] = []
        left = self.size - begun if count < 0 else count
        try:
            while left > 0:
                piece = await self._next(left)
                if not piece:
                    break
                pieces.append(piece)
                left -= len(piece)
        except BaseException:
            self.seek(begun)
            raise
        return b"".join(pieces)

    def seek(self, offset: int) -> None:
        """Goes to a byte, counted from 0; the next read begins there."""
        if offset < 0:
            raise ValueError(f"offset: must not be negative, is {offset}")
        if offset != self._offset:
            self._drop()
            self._offset = offset

    async def _next(self, most: int | None) -> bytes:
        """Returns what comes next, at most so many bytes; nothing at the end."""
        if self._used == len(self._chunk):
            self._chunk, self._used = await self._fetch(), 0
        end = len(self._chunk) if most is None else min(self._used + most, len(self._chunk))
        piece = self._chunk[self._used : end]
        self._used = end
        self._offset += len(piece)
        return piece

    async def _fetch(self) -> bytes:
        while self._offset < self.size:
            if self._stream is None:
                request = make(
                    api.StreamArtifactRequest, artifact_id=self._artifact_id, offset=self._offset
                )
                self._stream = self._calls.stream(
                    HostStream[api.StreamArtifactResponse], "StreamArtifact", request
                )
            try:
                response = await anext(self._stream, None)
            except BaseException:
                self._drop()
                raise
            if response is None:
                self._drop()
                raise HostUnavailable(
                    method="StreamArtifact",
                    reason="UNAVAILABLE",
                    message=f"the stream ended after {self._offset} of {self.size} bytes",
                )
            if response.data:
                return response.data
        return b""

    def _drop(self) -> None:
        self._chunk, self._used = b"", 0
        if self._stream is not None:
            self._stream.close()
            self._stream = None
