"""One call of a tool, from its parameters to its answer, for runs and for operators alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from runmesh.v1 import host_api_pb2, types_pb2

from host_service.capabilities.tool_results import ToolResults
from host_service.capabilities.uploads import Owner
from host_service.catalogue.tool import Tool
from host_service.errors import FieldFault, InvalidArgument, NotFound, Unavailable
from host_service.limits import Limits
from host_service.telemetry import Telemetry, ToolSpan
from host_service.tools.errors import (
    CallFailed,
    CallTimedOut,
    ParametersRefused,
    ServerFailed,
    SessionLost,
    ToolUnknown,
)
from host_service.tools.parameters import check_parameters, read_parameters
from host_service.tools.servers import ToolServers
from stores.artifacts import Artifacts

if TYPE_CHECKING:
    from host_service.tools.session import Answer

_RETRY_SECONDS = 5.0


class ToolCalls:
    """Calls tools.

    Args:
        servers: Offer them.
        artifacts: Where large results go.
        limits: What is large, and what is too much.
        telemetry: Traces.
        clock: Tells the time.
    """

    def __init__(
        self,
        *,
        servers: ToolServers,
        artifacts: Artifacts,
        limits: Limits,
        telemetry: Telemetry,
        clock: Callable[[], datetime],
    ) -> None:
        self._servers = servers
        self._results = ToolResults(artifacts=artifacts, limits=limits, clock=clock)
        self._telemetry = telemetry

    async def call(
        self,
        tool: Tool,
        parameters_json: str,
        owner: Owner,
        *,
        call_id: str = "",
        expires_at: datetime | None = None,
    ) -> host_api_pb2.CallToolResponse:
        """Call a tool. One that fails, or does not answer in time, is an answer with `is_error`.

        Args:
            tool: The tool.
            parameters_json: Its parameters, a JSON object.
            owner: Whose its results are.
            call_id: The model's id of the call.
            expires_at: When what is stored of the results goes; None: with their conversation.

        Raises:
            InvalidArgument: Its schema, or its server, allows no such parameters.
            NotFound: Its server has it no more.
            Unavailable: Its server is away.
        """
        arguments = read_parameters(parameters_json)
        if not tool.trouble:
            check_parameters(tool.schema_json, arguments)
        with self._telemetry.tool_span(tool.name, call_id) as span:
            try:
                answer = await self._servers.call(tool, arguments)
            except (CallFailed, CallTimedOut) as error:
                span.failed("timeout" if isinstance(error, CallTimedOut) else "protocol_error")
                return _failed(str(error))
            except ToolUnknown as error:
                span.failed("unknown_tool")
                raise NotFound("tool", tool.name) from error
            except ParametersRefused as error:
                span.failed("invalid_parameters")
                fault = FieldFault("parameters_json", f"what the tool takes: {error}", "others")
                raise InvalidArgument([fault]) from error
            except (ServerFailed, SessionLost) as error:
                span.failed("server_away")
                raise Unavailable(
                    f"the tool server {tool.server_id} cannot be called: {error}",
                    facts={"tool_server": tool.server_id},
                    retry_after_seconds=_RETRY_SECONDS,
                ) from error
            return await self._taken(tool, answer, owner, span, expires_at)

    async def _taken(
        self,
        tool: Tool,
        answer: Answer,
        owner: Owner,
        span: ToolSpan,
        expires_at: datetime | None,
    ) -> host_api_pb2.CallToolResponse:
        response = await self._results.take(tool.name, answer, owner, expires_at=expires_at)
        if response.is_error:
            span.failed("tool_error")
        return response


def _failed(text: str) -> host_api_pb2.CallToolResponse:
    return host_api_pb2.CallToolResponse(parts=[types_pb2.ContentPart(text=text)], is_error=True)
