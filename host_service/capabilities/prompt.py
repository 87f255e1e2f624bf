"""A run's instruction package: what its agent's configuration and its workspace have to say."""

from __future__ import annotations

from runmesh.v1 import host_api_pb2, types_pb2

from host_service.authorization.tokens import RunAccess
from host_service.validation.json_text import repair_text

_WORKSPACE = "workspace"
_ROLES = {
    "user": types_pb2.CHAT_ROLE_USER,
    "assistant": types_pb2.CHAT_ROLE_ASSISTANT,
    "tool": types_pb2.CHAT_ROLE_TOOL,
}


class Prompt:
    """Gives runs their instructions, as they were at their start.

    The bound prompt is the first prompt of the configuration, in the order of the runner's schema,
    that has any entries. Entries of the others are fragments, and so is what the workspace says.
    """

    async def get(
        self,
        access: RunAccess,
        request: host_api_pb2.GetPromptRequest,  # noqa: ARG002 - every capability's method takes both
    ) -> host_api_pb2.GetPromptResponse:
        """Give a run its instructions."""
        response = host_api_pb2.GetPromptResponse()
        for name, entries in access.told.prompts.read():
            if not response.messages:
                for entry in entries:
                    # Whatever else is a role to some model, such as `developer`, instructs it.
                    role = _ROLES.get(entry.role.lower(), types_pb2.CHAT_ROLE_SYSTEM)
                    message = response.messages.add(role=role)
                    message.parts.add(text=repair_text(entry.content))
                continue
            source = f"config.{name}"
            for entry in entries:
                response.fragments.add(source=source, text=repair_text(entry.content))
        if access.snapshot.instructions:
            response.fragments.add(source=_WORKSPACE, text=access.snapshot.instructions)
        return response
