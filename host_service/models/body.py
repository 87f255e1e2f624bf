"""The bodies of requests: JSON in which every number has the digits that it was given with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from host_service.catalogue.model import Model
from host_service.errors import FieldFault, InvalidArgument, PayloadTooLarge
from host_service.models.answers import Question
from host_service.validation.json_exact import read_exactly, write_exactly

EXTRA_ARGS = "extra_args_json"
#: What asks a stream for its cost; not every server knows it.
STREAM_OPTIONS = "stream_options"
#: What a chat request has of its own: an argument of these names would be another request.
RESERVED = frozenset(
    {"model", "messages", "stream", "tools", "tool_choice", "functions", "function_call", "n"}
)
_OWN_RULE = "without what the request has of its own"
_WORDS = frozenset({"auto", "none", "required"})


def chat_body(
    model: Model,
    model_name: str,
    question: Question,
    *,
    stream: bool,
    with_usage: bool = True,
    most_bytes: int,
) -> bytes:
    """Return the body of a chat request.

    The model's options come first, the question's arguments win over them.

    Args:
        model: Which model.
        model_name: What the provider calls it.
        question: What it is asked.
        stream: Whether its answer is to be streamed.
        with_usage: Whether a stream is asked to tell what it cost.
        most_bytes: How large the body may be.

    Raises:
        InvalidArgument: An argument has a name that is not for arguments, or the choice of a tool
            is none.
        PayloadTooLarge: It is too large.
    """
    body: dict[str, Any] = {"model": model_name, "messages": list(question.messages)}
    if question.tools:
        body["tools"] = list(question.tools)
    choice = _tool_choice(question)
    if choice is not None:
        body["tool_choice"] = choice
    if stream:
        body["stream"] = True
    if stream and with_usage:
        body[STREAM_OPTIONS] = {"include_usage": True}
    body |= _arguments(model.options_json, f"options_json of model {model.id!r}", RESERVED)
    body |= _arguments(question.extra_args_json, EXTRA_ARGS, RESERVED)
    return write_body(body, most_bytes=most_bytes)


def plain_body(model: Model, model_name: str, own: Mapping[str, Any], *, most_bytes: int) -> bytes:
    """Return the body of a request that is no chat: its own fields, and the model's options.

    Args:
        model: Which model.
        model_name: What the provider calls it.
        own: Fields of the request.
        most_bytes: How large the body may be.

    Raises:
        InvalidArgument: An option has the name of one of its fields.
        PayloadTooLarge: It is too large.
    """
    body = {"model": model_name, **own}
    options = _arguments(model.options_json, f"options_json of model {model.id!r}", frozenset(body))
    return write_body({**body, **options}, most_bytes=most_bytes)


def write_body(body: Mapping[str, Any], *, most_bytes: int) -> bytes:
    """Return a body as bytes.

    Raises:
        PayloadTooLarge: There are more than may be.
    """
    data = write_exactly(dict(body)).encode("utf-8", "replace")
    if len(data) > most_bytes:
        raise PayloadTooLarge(
            "the request to the model", size_bytes=len(data), limit_bytes=most_bytes
        )
    return data


def _arguments(text: str, where: str, reserved: frozenset[str]) -> dict[str, Any]:
    try:
        arguments: Any = read_exactly(text or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidArgument([FieldFault(where, "a JSON object", "something else")])
    taken = sorted(reserved & arguments.keys())
    if taken:
        raise InvalidArgument([FieldFault(f"{where}.{name}", _OWN_RULE, name) for name in taken])
    return arguments


def _tool_choice(question: Question) -> object:
    choice = question.tool_choice
    names = [_name(tool) for tool in question.tools]
    if choice in names and choice not in _WORDS:
        return {"type": "function", "function": {"name": choice}}
    if choice in _WORDS and (names or choice != "required"):
        return choice if names else None
    if not choice:
        return None
    rule = "`auto`, `none`, `required` (with tools), or the name of one of `tools`"
    raise InvalidArgument([FieldFault("tool_choice", rule, f"{choice!r}")])


def _name(tool: Mapping[str, Any]) -> str:
    function = tool.get("function")
    return str(function.get("name")) if isinstance(function, Mapping) else ""
