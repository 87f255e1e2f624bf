"""The run's tools: what they are, and calling them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmesh.v1 import context_pb2, types_pb2
from runmesh.v1 import host_api_pb2 as api

from runner_sdk._host.calls import HostCalls
from runner_sdk._host.requests import make
from runner_sdk._json import from_json, mend_escapes, to_json


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool answered.

    Attributes:
        proto: The whole answer.
    """

    proto: api.CallToolResponse

    @property
    def is_error(self) -> bool:
        """Whether the tool failed; `text` says why, for the model to read."""
        return self.proto.is_error

    @property
    def text(self) -> str:
        """The answer for a model: its text, else its JSON, else the beginning of a large one."""
        text = "".join(part.text for part in self.proto.parts)
        return text or self.proto.result_json or self.proto.preview

    @property
    def result(self) -> Any:
        """The answer as a JSON value, or None where the tool gave none."""
        return from_json(self.proto.result_json) if self.proto.HasField("result_json") else None

    @property
    def artifact(self) -> types_pb2.ArtifactRef | None:
        """The whole answer, where it was too large to carry: read it with `ctx.host.artifacts`."""
        return self.proto.artifact if self.proto.HasField("artifact") else None


@dataclass(frozen=True, slots=True)
class Tools:
    """The run's tools: `ctx.host.tools`.

    Needs the capability `tool_calling` and the permissions `tools: [detail]` and `[call]`.

    Attributes:
        available: The tools that the run was given, as in `ctx.resources.tools`.
    """

    calls: HostCalls
    available: Sequence[context_pb2.ToolResource] = ()

    async def detail(self, tool_name: str) -> api.GetToolDetailResponse:
        """Describes one tool, with the schema of its parameters.

        Raises:
            NotFound: The run was not given the tool.
        """
        request = make(api.GetToolDetailRequest, tool_name=tool_name)
        response: api.GetToolDetailResponse = await self.calls.call("GetToolDetail", request)
        return response

    async def definitions(self) -> list[types_pb2.ToolDefinition]:
        """Returns the definitions of all the run's tools, for a model to be told.

        Only the tools whose schema did not come along with the run are asked for.
        """
        return [await self._definition(tool) for tool in self.available]

    async def call(
        self,
        tool_name: str,
        parameters: Mapping[str, Any] | str,
        *,
        call_id: str = "",
        timeout_seconds: float | None = None,
    ) -> ToolAnswer:
        """Calls a tool. A tool that fails is an answer with `is_error`.

        Args:
            tool_name: Which tool.
            parameters: Its parameters; a text is the JSON object itself, as a model wrote it.
            call_id: The model's id of the call, for logs.
            timeout_seconds: How long it may take, where that is less than the run may.

        Raises:
            NotFound: The run was not given the tool.
            InvalidArgument: The parameters are no JSON object, or break the tool's schema: tell
                the model.
        """
        if isinstance(parameters, str):
            # A model that calls a tool without parameters may well write nothing.
            text = mend_escapes(parameters).strip() or "{}"
        else:
            text = to_json(parameters, field=tool_name)
        request = make(
            api.CallToolRequest,
            tool_name=tool_name,
            parameters_json=text,
            call_id=call_id,
        )
        response: api.CallToolResponse = await self.calls.call(
            "CallTool", request, timeout_seconds=timeout_seconds
        )
        return ToolAnswer(response)

    async def _definition(self, tool: context_pb2.ToolResource) -> types_pb2.ToolDefinition:
        if not tool.HasField("parameters_schema_json"):
            return (await self.detail(tool.name)).definition
        return types_pb2.ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_schema_json=tool.parameters_schema_json,
        )
