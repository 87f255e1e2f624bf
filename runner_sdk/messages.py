"""Messages for models: what `ctx.host.models` is given.

A message may be written as plain text (the user's), as a role and a text, or as the contract's
`ChatMessage`, which the functions here make::

    await ctx.host.models.invoke(
        model_id,
        [("system", "Be brief."), user_message("What is in it?", picture)],
    )
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from runmesh.v1 import host_api_pb2, types_pb2
from runmesh.v1.types_pb2 import ChatMessage

from runner_sdk._text import mend_all
from runner_sdk.results import Part, content_part

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
MessageLike: TypeAlias = str | tuple[Role, str] | ChatMessage
"""Text of the user's, a role and a text, or a whole message."""


def system_message(text: str) -> ChatMessage:
    """Makes a message of instructions."""
    return _message("system", [text])


def user_message(*parts: Part, name: str = "") -> ChatMessage:
    """Makes a message of a person's.

    Args:
        *parts: Text, artifact refs or content parts, in order.
        name: Who speaks.
    """
    return _message("user", parts, name=name)


def tool_message(call_id: str, *parts: Part, name: str = "") -> ChatMessage:
    """Makes the answer to one of a model's tool calls.

    Args:
        call_id: The call's id, as the model gave it.
        *parts: What the tool answered: text, artifact refs or content parts.
        name: The tool's name.
    """
    return _message("tool", parts, name=name, tool_call_id=call_id)


def transcript_message(item: host_api_pb2.TranscriptItem) -> ChatMessage:
    """Makes a message of an item of the transcript: its role and content, its artifacts beside."""
    parts = list(item.parts)
    if not parts and item.HasField("text"):
        parts = [types_pb2.ContentPart(text=item.text)]
    return ChatMessage(
        message_id=item.transcript_id,
        role=item.role,
        parts=parts,
        artifacts=item.artifacts,
    )


def chat_messages(messages: str | Iterable[MessageLike]) -> list[ChatMessage]:
    """Returns messages as the contract has them.

    Raises:
        TypeError: One of them is no message.
        ValueError: A role is none of the contract's.
    """
    given = [messages] if isinstance(messages, str) else messages
    return [_chat_message(message) for message in given]


def _chat_message(message: MessageLike) -> ChatMessage:
    match message:
        case str():
            return _message("user", [message])
        case ChatMessage():
            return message
        case (str() as role, str() as text):
            return _message(role, [text])
    raise TypeError(
        f"messages: {type(message).__name__} is no message: give text, (role, text) or ChatMessage"
    )


def _message(
    role: str, parts: Iterable[Part], *, name: str = "", tool_call_id: str = ""
) -> ChatMessage:
    number = _role(role)
    texts = [mend_all(part) for part in parts]
    return ChatMessage(
        role=number,
        parts=[content_part(part) for part in texts],
        name=mend_all(name),
        tool_call_id=mend_all(tool_call_id),
    )


def _role(role: str) -> types_pb2.ChatRole.ValueType:
    try:
        return types_pb2.ChatRole.Value(f"CHAT_ROLE_{role.upper()}")
    except ValueError:
        known = ", ".join(Role.__args__)  # type: ignore[attr-defined]
        raise ValueError(f"messages: the role {role!r} is none of {known}") from None
