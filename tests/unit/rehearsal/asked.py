"""Requests to the rehearsal model, as clients of the protocol write them."""

from collections.abc import Mapping, Sequence
from typing import Any

from host_service.rehearsal.request import ChatRequest, read_request

Said = Mapping[str, Any] | str

ADD = {
    "name": "math__add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
WEATHER = {
    "name": "weather__current",
    "description": "Tells how the weather is in a city. 查询城市的天气。",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    },
}
TIME = {"name": "clock__now", "description": "报告现在几点钟。", "parameters": {"type": "object"}}


def body(*messages: Said, tools: Sequence[Mapping[str, Any]] = (), **fields: Any) -> dict[str, Any]:
    """Returns a body; a text is a message of the user's."""
    asked = [
        {"role": "user", "content": each} if isinstance(each, str) else dict(each)
        for each in messages
    ]
    offered = [{"type": "function", "function": dict(each)} for each in tools]
    return {
        "model": "rehearsal",
        "messages": asked,
        **({"tools": offered} if offered else {}),
        **fields,
    }


def request(*messages: Said, tools: Sequence[Mapping[str, Any]] = (), **fields: Any) -> ChatRequest:
    """Returns such a request, read."""
    return read_request(body(*messages, tools=tools, **fields))


def called(name: str, arguments_json: str = "{}", call_id: str = "call_1") -> dict[str, Any]:
    """Returns a message in which the assistant called a tool."""
    function = {"name": name, "arguments": arguments_json}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def result(text: str, call_id: str = "call_1") -> dict[str, Any]:
    """Returns a message with a tool's result."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}
