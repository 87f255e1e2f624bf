"""A request for a chat completion, as far as the rehearsal model looks at one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

JsonObject = Mapping[str, Any]

# How an answer comes, and not what it is.
_OF_THE_WAY = frozenset({"stream", "stream_options"})


class RequestInvalid(Exception):
    """A body is not what the protocol has.

    Attributes:
        parameter: The field.
        rule: What it must be.
    """

    def __init__(self, parameter: str, rule: str) -> None:
        super().__init__(f"{parameter} must be {rule}")
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the conversation.

    Attributes:
        role: `system`, `user`, `assistant`, `tool`, or another.
        text: Its text, parts put together.
        others: Kinds of its parts that are no text, in their order, such as `image_url`.
        calls: The tool calls that it asks for.
        call_id: Which call it answers; empty: none.
    """

    role: str
    text: str
    others: tuple[str, ...] = ()
    calls: tuple[AskedCall, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A tool call that an earlier answer asked for."""

    id: str
    name: str
    arguments_json: str


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that an answer may call.

    Attributes:
        name: Its name.
        description: What it does.
        parameters: The JSON schema of its arguments.
    """

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What was asked.

    Attributes:
        model: The model's name, given back as it came.
        messages: The conversation, oldest first.
        tools: The tools on offer; none where the request forbids their use.
        forced_tool: The tool that must be called; empty: none in particular.
        must_call: Whether some tool must be called.
        stream: Whether the answer comes in pieces.
        include_usage: Whether a stream ends with what it took.
        digest: The same for the same request, streamed or not.
    """

    model: str
    messages: Sequence[Message]
    tools: Sequence[OfferedTool] = ()
    forced_tool: str = ""
    must_call: bool = False
    stream: bool = False
    include_usage: bool = False
    digest: str = ""

    @property
    def question(self) -> Message:
        """What the user said last; an empty message where nobody said anything."""
        return next(
            (each for each in reversed(self.messages) if each.role == "user"), Message("user", "")
        )

    @property
    def since(self) -> Sequence[Message]:
        """What followed on what the user said last: rounds of tool calls and their results."""
        last = max(
            (place for place, each in enumerate(self.messages) if each.role == "user"), default=-1
        )
        return self.messages[last + 1 :]

    @property
    def turn(self) -> int:
        """How many messages of the user there are."""
        return sum(each.role == "user" for each in self.messages)

    @property
    def round(self) -> int:
        """How often tools were called since the user said something."""
        return sum(bool(each.calls) for each in self.since)


def read_request(body: object) -> ChatRequest:
    """Return what a body asks.

    Raises:
        RequestInvalid: It is not what the protocol has.
    """
    if not isinstance(body, dict):
        raise RequestInvalid("the body", "a JSON object")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise RequestInvalid("model", "a name")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestInvalid("messages", "a list with a message in it")
    choice = body.get("tool_choice", "auto")
    options = body.get("stream_options") or {}
    forced = _forced(choice)
    return ChatRequest(
        model=model,
        messages=tuple(_message(each, f"messages[{i}]") for i, each in enumerate(messages)),
        tools=() if choice == "none" else tuple(_tools(body.get("tools") or [])),
        forced_tool=forced,
        must_call=bool(forced) or choice == "required",
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        digest=_digest(body),
    )


def _digest(body: JsonObject) -> str:
    asked = {name: value for name, value in body.items() if name not in _OF_THE_WAY}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _forced(choice: object) -> str:
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        return str(choice["function"].get("name", ""))
    return ""


def _message(value: object, path: str) -> Message:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise RequestInvalid(path, "an object with a role")
    text, others = _content(value.get("content"), f"{path}.content")
    return Message(
        role=value["role"],
        text=text,
        others=others,
        calls=tuple(_calls(value.get("tool_calls") or [], f"{path}.tool_calls")),
        call_id=str(value.get("tool_call_id") or ""),
    )


def _content(value: object, path: str) -> tuple[str, tuple[str, ...]]:
    if value is None or isinstance(value, str):
        return value or "", ()
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        raise RequestInvalid(path, "a text or a list of parts")
    texts = [str(part.get("text", "")) for part in value if part.get("type") == "text"]
    return "\n".join(texts), tuple(
        str(part.get("type")) for part in value if part.get("type") != "text"
    )


def _calls(value: object, path: str) -> Iterator[AskedCall]:
    if not isinstance(value, list):
        raise RequestInvalid(path, "a list")
    for place, each in enumerate(value):
        function = each.get("function") if isinstance(each, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestInvalid(f"{path}[{place}]", "a call of a function with a name")
        yield AskedCall(
            str(each.get("id", "")), function["name"], str(function.get("arguments", ""))
        )


def _tools(value: object) -> Iterator[OfferedTool]:
    if not isinstance(value, list):
        raise RequestInvalid("tools", "a list")
    for place, each in enumerate(value):
        function = each.get("function") if isinstance(each, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestInvalid(f"tools[{place}].function", "an object with a name")
        parameters = function.get("parameters")
        yield OfferedTool(
            function["name"],
            str(function.get("description") or ""),
            parameters if isinstance(parameters, dict) else {},
        )
