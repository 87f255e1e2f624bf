"""A bare server of files: `python -m benchmarks.floors.files ADDRESS`.

It takes what is streamed to it and forgets it, and streams as many zeros as it is asked for, in the
messages of `GatewayService`. No disk, no digest, no key.
"""

import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop
from runmesh.v1 import gateway_pb2, gateway_pb2_grpc

from benchmarks.floors.transport import OPTIONS, serve

CHUNK_BYTES = 1024 * 1024


class BareFiles(gateway_pb2_grpc.GatewayServiceServicer):
    """Takes and gives bytes."""

    async def CreateArtifact(  # noqa: N802
        self,
        requests: AsyncIterator[gateway_pb2.GatewayServiceCreateArtifactRequest],
        _context: Any,
    ) -> gateway_pb2.GatewayServiceCreateArtifactResponse:
        """Reads to the end and says how much it was."""
        answer = gateway_pb2.GatewayServiceCreateArtifactResponse()
        async for request in requests:
            answer.artifact.size_bytes += len(request.chunk)
        return answer

    async def ReadArtifact(  # type: ignore[override] # noqa: N802
        self, request: gateway_pb2.GatewayServiceReadArtifactRequest, context: Any
    ) -> None:
        """Streams as many chunks as the artifact's id, a number, says."""
        chunk = bytes(CHUNK_BYTES)
        for _ in range(int(request.artifact_id)):
            await context.write(gateway_pb2.GatewayServiceReadArtifactResponse(data=chunk))


async def _main(address: str) -> None:
    server = grpc.aio.server(options=OPTIONS)
    gateway_pb2_grpc.add_GatewayServiceServicer_to_server(BareFiles(), server)
    await serve(server, address)


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1]))
