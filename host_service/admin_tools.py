"""AdminService's calls about tool servers at work: looked at, and their tools tried by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from runmesh.admin.v1 import admin_pb2_grpc, tools_pb2

from host_service.admin_audit import AdminAudit
from host_service.agents.directory import AgentDirectory
from host_service.capabilities.tool_calls import ToolCalls
from host_service.capabilities.uploads import Owner
from host_service.catalogue.tool_server import SEPARATOR, ToolServer
from host_service.errors import NotFound, Unavailable
from host_service.interceptors import Context
from host_service.pages import PageTokens, page_of
from host_service.requests import RequestCheck
from host_service.tools.keeper import State, Status
from host_service.tools.servers import ToolServers

_KEPT_FOR = timedelta(hours=1)
_STATES = {
    State.CONNECTING: tools_pb2.TOOL_SERVER_STATE_CONNECTING,
    State.READY: tools_pb2.TOOL_SERVER_STATE_READY,
    State.RETRYING: tools_pb2.TOOL_SERVER_STATE_RETRYING,
    State.HELD: tools_pb2.TOOL_SERVER_STATE_HELD,
}


class ToolServerCalls(admin_pb2_grpc.AdminServiceServicer):
    """Decodes, does one thing, encodes. A part of `AdminServicer`, which gives it what it needs.

    Attributes:
        _directory: Knows which tool servers are declared.
        _tool_servers: The tool servers.
        _tool_calls: Calls their tools.
        _check: Refuses bad requests.
        _pages: Makes page tokens.
        _audit: Where calls are written down.
        _clock: Tells the time.
    """

    _directory: AgentDirectory
    _tool_servers: ToolServers
    _tool_calls: ToolCalls
    _check: RequestCheck
    _pages: PageTokens
    _audit: AdminAudit
    _clock: Callable[[], datetime]

    async def ListToolServerStatuses(
        self, request: tools_pb2.ListToolServerStatusesRequest, context: Context
    ) -> tools_pb2.ListToolServerStatusesResponse:
        """Say how it is with tool servers."""
        self._check.require(request)
        declared = self._directory.shelf.tool_servers
        wanted = request.tool_server_id
        ids = sorted(each for each in declared if wanted in {"", each})
        page, cursor = page_of(
            ids,
            cursor=self._pages.read(request),
            size=self._pages.size(request.page_size),
            keys=ids,
        )
        statuses = self._tool_servers.statuses()
        return tools_pb2.ListToolServerStatusesResponse(
            statuses=[_message(declared[each], statuses.get(each)) for each in page],
            next_page_token=self._pages.issue(request, cursor),
        )

    async def GrantTools(
        self, request: tools_pb2.GrantToolsRequest, context: Context
    ) -> tools_pb2.GrantToolsResponse:
        """Change which tools an agent's policy grants."""
        self._check.require(request)
        with self._audit.watched("GrantTools", f"agent {request.agent_id}"):
            tools, changed = await self._directory.grant_tools(
                request.agent_id, grant=request.grant, withdraw=request.withdraw
            )
        return tools_pb2.GrantToolsResponse(tools=tools, changed=changed)

    async def CallTool(
        self, request: tools_pb2.CallToolRequest, context: Context
    ) -> tools_pb2.CallToolResponse:
        """Call a tool by hand."""
        self._check.require(request)
        with self._audit.watched("CallTool", f"tool {request.tool_name}"):
            tool = self._tool_servers.toolset.get(request.tool_name)
            if tool is None:
                self._require_heard(request.tool_name)
                raise NotFound("tool", request.tool_name)
            answer = await self._tool_calls.call(
                tool,
                request.parameters_json,
                Owner(workspace="", bot=""),
                expires_at=self._clock() + _KEPT_FOR,
            )
        return tools_pb2.CallToolResponse(answer=answer)

    def _require_heard(self, name: str) -> None:
        """Raise `Unavailable` where a server would be the one to know such a tool."""
        server_id = name.partition(SEPARATOR)[0]
        status = self._tool_servers.statuses().get(server_id)
        if status is not None and status.state is not State.READY:
            trouble = status.trouble or "it has not told of its tools yet"
            raise Unavailable(f"the tool server {server_id} cannot be called: {trouble}")


def _message(server: ToolServer, status: Status | None) -> tools_pb2.ToolServerStatus:
    if status is None or status.plan.server.revision != server.revision:
        # What is known is of what it was, for a moment.
        known = tools_pb2.TOOL_SERVER_STATE_CONNECTING
        state = known if server.enabled else tools_pb2.TOOL_SERVER_STATE_DISABLED
        return tools_pb2.ToolServerStatus(
            tool_server_id=server.id, state=state, revision=server.revision
        )
    message = tools_pb2.ToolServerStatus(
        tool_server_id=server.id,
        state=_STATES[status.state],
        trouble=status.trouble,
        last_words=status.last_words,
        tools=[
            tools_pb2.OfferedTool(
                name=each.name,
                description=each.description,
                parameters_schema_json=each.schema_json,
                trouble=each.trouble,
            )
            for each in status.tools
        ],
        left_out=[
            tools_pb2.LeftOutTool(name=each.name, reason=each.reason) for each in status.left_out
        ],
        protocol_version=status.protocol_version,
        server_name=status.server_name,
        revision=server.revision,
    )
    if status.next_try_at is not None:
        message.next_try_at.FromDatetime(status.next_try_at)
    return message
