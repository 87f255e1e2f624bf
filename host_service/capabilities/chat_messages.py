"""The contract's chat messages in the words of OpenAI's chat protocol, and its answers back."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from runmesh.v1 import host_api_pb2, types_pb2

from host_service.errors import FieldFault, InvalidArgument
from host_service.models.answers import Answer, Delta, Usage
from host_service.validation.json_exact import read_exactly

_ROLES = {
    types_pb2.CHAT_ROLE_SYSTEM: "system",
    types_pb2.CHAT_ROLE_USER: "user",
    types_pb2.CHAT_ROLE_ASSISTANT: "assistant",
    types_pb2.CHAT_ROLE_TOOL: "tool",
}
_IMAGE = "image/"
# What providers do not take in a speaker's name.
_NOT_IN_NAMES = re.compile(r"[\s<|\\/>]+")
_NAME_CHARACTERS = 64

Message: TypeAlias = dict[str, Any]
#: Returns the bytes and the media type of an artifact; told the field, for errors.
ReadArtifact: TypeAlias = Callable[[types_pb2.ArtifactRef, str], Awaitable[tuple[bytes, str]]]


class ChatMessages:
    """Writes the messages of one call.

    Args:
        sees_images: Whether the model does.
        read_artifact: Reads artifacts of the run.
    """

    def __init__(self, *, sees_images: bool, read_artifact: ReadArtifact) -> None:
        self._sees_images = sees_images
        self._read_artifact = read_artifact

    async def write(self, messages: Sequence[types_pb2.ChatMessage]) -> list[Message]:
        """Return the messages as the protocol has them.

        Raises:
            InvalidArgument: The model cannot take a part, or a message is no message of its role.
            NotFound: An artifact is not the run's to see.
        """
        return [
            await self._write(message, f"messages[{index}]")
            for index, message in enumerate(messages)
        ]

    async def _write(self, message: types_pb2.ChatMessage, field: str) -> Message:
        role = _ROLES.get(message.role)
        if role is None:
            raise _fault(f"{field}.role", "a role that this host knows", str(message.role))
        if role == "user":
            content: Any = await self._content(message, field)
        else:
            content = _text_only(message, field)
        written: Message = {"role": role, "content": content}
        if role == "tool":
            if not message.tool_call_id:
                raise _fault(f"{field}.tool_call_id", "the id of the call it answers", "none")
            written["tool_call_id"] = message.tool_call_id
        elif message.name:
            written["name"] = _NOT_IN_NAMES.sub("_", message.name)[:_NAME_CHARACTERS]
        if role == "assistant" and message.tool_calls:
            written["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
            written["content"] = content or None
        return written

    async def _content(self, message: types_pb2.ChatMessage, field: str) -> str | list[Message]:
        """Return one text, or a list of parts where there are several or other things."""
        if len(message.parts) == 1 and message.parts[0].WhichOneof("content") == "text":
            return message.parts[0].text
        parts = []
        for index, part in enumerate(message.parts):
            written = await self._part(part, f"{field}.parts[{index}]")
            if written is not None:
                parts.append(written)
        return parts or ""

    async def _part(self, part: types_pb2.ContentPart, field: str) -> Message | None:
        match part.WhichOneof("content"):
            case "text":
                return {"type": "text", "text": part.text}
            case "inline":
                mime_type = part.inline.mime_type
                self._require_image(mime_type, f"{field}.inline")
                return _image(_data_url(part.inline.data, mime_type))
            case "artifact":
                self._require_image(part.artifact.mime_type or _IMAGE, f"{field}.artifact")
                data, mime_type = await self._read_artifact(part.artifact, f"{field}.artifact")
                self._require_image(mime_type, f"{field}.artifact")
                return _image(_data_url(data, mime_type))
            case "url":
                self._require_image(part.url.mime_type or _IMAGE, f"{field}.url")
                return _image(part.url.url)
            case "platform":
                raise _fault(
                    f"{field}.platform",
                    "text, or a picture that is carried along, an artifact or a URL: what a "
                    "platform keeps, no model can read",
                    "a platform's own id",
                )
        # A kind that this host does not know is skipped, as the contract says.
        return None

    def _require_image(self, mime_type: str, field: str) -> None:
        if not mime_type.lower().startswith(_IMAGE):
            rule = "text or a picture: read what else there is, and send its text"
            raise _fault(field, rule, mime_type)
        if not self._sees_images:
            raise _fault(field, "text: the model has not the ability `vision`", "a picture")


def tools(definitions: Sequence[types_pb2.ToolDefinition]) -> list[Message]:
    """Return tools as the protocol has them; numbers in their schemas keep their digits."""
    return [
        {
            "type": "function",
            "function": {
                "name": each.name,
                "description": each.description,
                "parameters": read_exactly(each.parameters_schema_json),
            },
        }
        for each in definitions
    ]


def delta_message(delta: Delta) -> host_api_pb2.ModelDelta:
    """Return a piece of an answer as the contract has it."""
    return host_api_pb2.ModelDelta(
        text=delta.text,
        reasoning_text=delta.reasoning_text,
        tool_calls=[
            host_api_pb2.ToolCallFragment(
                index=each.index,
                id=each.id,
                name=each.name,
                arguments_fragment=each.arguments,
            )
            for each in delta.tool_calls
        ],
    )


def answer_message(answer: Answer) -> types_pb2.ChatMessage:
    """Return an answer as the contract has it."""
    return types_pb2.ChatMessage(
        role=types_pb2.CHAT_ROLE_ASSISTANT,
        parts=[types_pb2.ContentPart(text=answer.text)] if answer.text else (),
        reasoning_text=answer.reasoning_text,
        tool_calls=[
            types_pb2.ToolCall(id=each.id, name=each.name, arguments_json=each.arguments_json)
            for each in answer.tool_calls
        ],
    )


def usage_message(usage: Usage | None) -> types_pb2.TokenUsage | None:
    """Return what a call cost as the contract has it; unknown counts are absent."""
    if usage is None:
        return None
    return types_pb2.TokenUsage(
        model_id=usage.model_id,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )


def _text_only(message: types_pb2.ChatMessage, field: str) -> str:
    for index, part in enumerate(message.parts):
        kind = part.WhichOneof("content")
        if kind is not None and kind != "text":
            rule = "text: only a user's message may have more"
            raise _fault(f"{field}.parts[{index}].{kind}", rule, f"a part of the kind {kind}")
    return "".join(part.text for part in message.parts)


def _tool_call(call: types_pb2.ToolCall) -> Message:
    function = {"name": call.name, "arguments": call.arguments_json}
    return {"id": call.id, "type": "function", "function": function}


def _image(url: str) -> Message:
    return {"type": "image_url", "image_url": {"url": url}}


def _data_url(data: bytes, mime_type: str) -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


def _fault(field: str, rule: str, got: str) -> InvalidArgument:
    return InvalidArgument([FieldFault(field, rule, got)])
