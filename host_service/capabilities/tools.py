"""Tools that runs were given."""

from __future__ import annotations

from runmesh.v1 import host_api_pb2

from host_service.authorization.tokens import RunAccess
from host_service.errors import NotFound, NotImplementedHere


class Tools:
    """Finds the tool that a call names among those of the run.

    This host reaches no tool server: a call for a tool that the run has is NOT_IMPLEMENTED.
    """

    async def detail(
        self, access: RunAccess, request: host_api_pb2.GetToolDetailRequest
    ) -> host_api_pb2.GetToolDetailResponse:
        """Describe a tool."""
        _find(access, request.tool_name)
        raise NotImplementedHere("HostAPIService.GetToolDetail")

    async def call(
        self, access: RunAccess, request: host_api_pb2.CallToolRequest
    ) -> host_api_pb2.CallToolResponse:
        """Call a tool."""
        _find(access, request.tool_name)
        raise NotImplementedHere("HostAPIService.CallTool")


def _find(access: RunAccess, tool_name: str) -> None:
    if tool_name not in access.snapshot.tools:
        raise NotFound("tool", tool_name)
