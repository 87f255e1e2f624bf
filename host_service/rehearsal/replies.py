"""Bodies and chunks of the OpenAI protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from host_service.rehearsal.answering import Answer
from host_service.rehearsal.request import AskedCall, ChatRequest

#: Ends a stream.
DONE = b"data: [DONE]\n\n"

# A word with the space before it, or a character of a script without spaces.
_PIECE = re.compile(r"\s*[!-~\u00a1-\u1fff]+|\s*[^\s]|\s+$")
_BYTES_OF_A_TOKEN = 4
# What a provider adds to each message for its role.
_TOKENS_OF_A_MESSAGE = 4


def completion(request: ChatRequest, answer: Answer) -> dict[str, Any]:
    """Return the body of a whole answer."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [_call(each) for each in answer.calls]
    choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
    return {
        **_envelope(request, "chat.completion"),
        "choices": [choice],
        "usage": usage(request, answer),
    }


def chunks(request: ChatRequest, answer: Answer) -> Iterator[bytes]:
    """Yield the records of a streamed answer, up to the one that ends it."""

    def chunk(delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return record({**_envelope(request, "chat.completion.chunk"), "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in _PIECE.findall(answer.reasoning):
        yield chunk({"reasoning_content": piece})
    for piece in _PIECE.findall(answer.text):
        yield chunk({"content": piece})
    for index, call in enumerate(answer.calls):
        begun = {**_call(call), "index": index}
        begun["function"] = {"name": call.name, "arguments": ""}
        yield chunk({"tool_calls": [begun]})
        for piece in _PIECE.findall(call.arguments_json):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, answer.finish_reason)
    if request.include_usage:
        yield record(
            {
                **_envelope(request, "chat.completion.chunk"),
                "choices": [],
                "usage": usage(request, answer),
            }
        )


def record(body: Mapping[str, Any]) -> bytes:
    """Return a body as a record of a stream."""
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def error(message: str, *, kind: str, parameter: str | None = None) -> dict[str, Any]:
    """Return the body of a failure."""
    return {"error": {"message": message, "type": kind, "param": parameter, "code": None}}


def usage(request: ChatRequest, answer: Answer) -> dict[str, int]:
    """Return what an answer took, by a count of its own: 4 bytes a token."""
    asked = sum(
        _TOKENS_OF_A_MESSAGE
        + tokens(each.text)
        + sum(tokens(call.name) + tokens(call.arguments_json) for call in each.calls)
        for each in request.messages
    ) + sum(
        tokens(each.name)
        + tokens(each.description)
        + tokens(json.dumps(each.parameters, ensure_ascii=False))
        for each in request.tools
    )
    said = tokens(answer.text) + tokens(answer.reasoning)
    said += sum(tokens(each.name) + tokens(each.arguments_json) for each in answer.calls)
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


def tokens(text: str) -> int:
    """Return how many tokens a text is counted as."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_OF_A_TOKEN)


def embeddings(model: str, vectors: Sequence[Any], texts: Sequence[str]) -> dict[str, Any]:
    """Return the body of vectors, each a list of numbers or a text that encodes them."""
    count = sum(map(tokens, texts))
    return {
        "object": "list",
        "model": model,
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": count, "total_tokens": count},
    }


def _envelope(request: ChatRequest, kind: str) -> dict[str, Any]:
    # No time is given: the same request gets the same answer.
    return {
        "id": f"chatcmpl-{request.digest[:24]}",
        "object": kind,
        "created": 0,
        "model": request.model,
    }


def _call(call: AskedCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments_json}
    return {"id": call.id, "type": "function", "function": function}
