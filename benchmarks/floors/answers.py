"""A bare server of unary answers: `python -m benchmarks.floors.answers ADDRESS STATE HISTORY`.

It answers `GetState` and `PageHistory` with what is in two files: the very bytes that a host
answered. It looks nothing up, checks no tokens and keeps no audit.
"""

import sys
from pathlib import Path
from typing import Any

import grpc
import uvloop
from runmesh.v1 import host_api_pb2, host_api_pb2_grpc

from benchmarks.floors.transport import OPTIONS, serve


class BareAnswers(host_api_pb2_grpc.HostAPIServiceServicer):
    """Answers the same again and again.

    Args:
        state: The answer to `GetState`.
        history: The answer to `PageHistory`.
    """

    def __init__(
        self, *, state: host_api_pb2.GetStateResponse, history: host_api_pb2.PageHistoryResponse
    ) -> None:
        self._state = state
        self._history = history

    async def GetState(  # noqa: N802
        self, _request: host_api_pb2.GetStateRequest, _context: Any
    ) -> host_api_pb2.GetStateResponse:
        """Answers the value."""
        return self._state

    async def PageHistory(  # noqa: N802
        self, _request: host_api_pb2.PageHistoryRequest, _context: Any
    ) -> host_api_pb2.PageHistoryResponse:
        """Answers the page."""
        return self._history


async def _main(address: str, answers: BareAnswers) -> None:
    server = grpc.aio.server(options=OPTIONS)
    host_api_pb2_grpc.add_HostAPIServiceServicer_to_server(answers, server)
    await serve(server, address)


if __name__ == "__main__":
    _, address, state, history = sys.argv
    bare = BareAnswers(
        state=host_api_pb2.GetStateResponse.FromString(Path(state).read_bytes()),
        history=host_api_pb2.PageHistoryResponse.FromString(Path(history).read_bytes()),
    )
    uvloop.run(_main(address, bare))
