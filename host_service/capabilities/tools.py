"""Tools that runs were given."""

from __future__ import annotations

from runmesh.v1 import host_api_pb2, types_pb2

from host_service.authorization.tokens import RunAccess
from host_service.capabilities.recorded_tools import RecordedTools
from host_service.capabilities.tool_calls import ToolCalls
from host_service.capabilities.uploads import Owner
from host_service.catalogue.tool import Tool, Toolset
from host_service.catalogue.tool_server import SEPARATOR
from host_service.errors import NotFound, Unavailable
from host_service.runs.artifact_refs import hand_to_run
from host_service.tools.servers import ToolServers

# All tools are those of tool servers, which speak the Model Context Protocol.
_TYPE = "mcp"


class Tools:
    """Describes and calls the tools that a run was given.

    What is told of a tool, and checked against, is what it was when the run's rights were frozen;
    of one whose server answered later, what it is now.

    Args:
        servers: Offer them.
        calls: Calls them.
        recorded: Has what tools answered in runs that are replayed.
    """

    def __init__(self, *, servers: ToolServers, calls: ToolCalls, recorded: RecordedTools) -> None:
        self._servers = servers
        self._calls = calls
        self._recorded = recorded

    async def detail(
        self, access: RunAccess, request: host_api_pb2.GetToolDetailRequest
    ) -> host_api_pb2.GetToolDetailResponse:
        """Describe a tool.

        Raises:
            NotFound: The run was not given it.
            Unavailable: Its server has not told of its tools yet.
        """
        tool = self._find(access, request.tool_name)
        definition = types_pb2.ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_schema_json=tool.told_schema_json,
        )
        return host_api_pb2.GetToolDetailResponse(definition=definition, type=_TYPE)

    async def call(
        self, access: RunAccess, request: host_api_pb2.CallToolRequest
    ) -> host_api_pb2.CallToolResponse:
        """Call a tool; in a replay without side effects, answer what it answered the original.

        Raises:
            NotFound: The run was not given it, or its server has it no more.
            InvalidArgument: Its parameters are not what it takes.
            Unavailable: Its server is away, or a replay finds no such call in its original.
        """
        if request.tool_name not in access.snapshot.tools:
            raise NotFound("tool", request.tool_name)
        if access.told.replays:
            return await self._recorded.answer(access.told.replays, request)
        tool = self._find(access, request.tool_name)
        identity = access.snapshot.identity
        owner = Owner(
            workspace=identity.workspace,
            bot=identity.bot,
            conversation_key=identity.conversation_key,
            run_id=access.snapshot.run_id,
        )
        response = await self._calls.call(
            tool, request.parameters_json, owner, call_id=request.call_id
        )
        hand_to_run(response, access.snapshot)
        return response

    def _find(self, access: RunAccess, name: str) -> Tool:
        if name not in access.snapshot.tools:
            raise NotFound("tool", name)
        given = next((each for each in access.snapshot.resources.tools if each.name == name), None)
        tool = given or self._toolset.get(name)
        if tool is not None:
            return tool
        server_id = name.partition(SEPARATOR)[0]
        if self._toolset.offered_by(server_id) is not None:
            raise NotFound("tool", name)
        raise Unavailable(
            f"the tool server {server_id} has not told of its tools yet",
            facts={"tool_server": server_id},
            retry_after_seconds=1.0,
        )

    @property
    def _toolset(self) -> Toolset:
        return self._servers.toolset
