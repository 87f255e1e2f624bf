"""The run's instructions."""

from dataclasses import dataclass

from runmesh.v1 import host_api_pb2

from runner_sdk._host.calls import HostCalls


@dataclass(frozen=True, slots=True)
class Prompt:
    """The run's instructions: `ctx.host.prompt`."""

    calls: HostCalls

    async def get(self) -> host_api_pb2.GetPromptResponse:
        """Reads the bound prompt and further fragments; what to do with them is the runner's."""
        response: host_api_pb2.GetPromptResponse = await self.calls.call(
            "GetPrompt", host_api_pb2.GetPromptRequest()
        )
        return response
