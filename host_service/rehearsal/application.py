"""The rehearsal model's HTTP: its routes, its key, the streams, and what a script does to them."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Send

from host_service.configuration.document import ConfigurationError
from host_service.rehearsal import replies
from host_service.rehearsal.answering import Answer, answer, answer_by_rule
from host_service.rehearsal.request import ChatRequest, RequestInvalid, read_request
from host_service.rehearsal.script import Script, ScriptedError, ScriptFile
from host_service.rehearsal.vectors import DIMENSION, embed, rerank

_LARGEST_BODY_BYTES = 64 * 1024 * 1024
_MOST_DIMENSIONS = 4096

Handler = Callable[[Request], Awaitable[Response]]


class RehearsalApplication:
    """Answers the calls of the protocol.

    Args:
        key: What every call must bring as its bearer token.
        scripts: Rules by the first step of a call's path; None: there are none. May grow.
    """

    def __init__(self, *, key: str, scripts: Mapping[str, ScriptFile | None]) -> None:
        self._key = key
        self._scripts = scripts

    def starlette(self) -> Starlette:
        """Return it as what a server serves."""

        def post(path: str, work: Handler) -> Route:
            return Route(f"/{{slug}}/v1/{path}", self._guarded(work), methods=["POST"])

        return Starlette(
            routes=[
                post("chat/completions", self._chat),
                post("embeddings", _embeddings),
                post("rerank", _rerank),
                Route("/{slug}/v1/models", self._guarded(_models)),
            ]
        )

    def _guarded(self, work: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not secrets.compare_digest(given.encode(), self._key.encode()):
                return _refusal(401, "the key is none of this server", "authentication_error")
            if request.path_params["slug"] not in self._scripts:
                return _refusal(404, "there is nothing here", "not_found_error")
            try:
                return await work(request)
            except RequestInvalid as error:
                return _refusal(400, str(error), "invalid_request_error", error.parameter)
            except ConfigurationError as error:
                # One line, as it is told in a run's failure.
                told = str(error).replace("\n", "; ")
                return _refusal(400, f"the script will not do: {told}", "invalid_request_error")

        return guarded

    async def _chat(self, http: Request) -> Response:
        request = read_request(await _body(http))
        file = self._scripts[http.path_params["slug"]]
        script = file.current() if file is not None else Script()
        rule = script.rule_for(request)
        if rule is None:
            return _answered(request, answer(request))
        await asyncio.sleep(rule.delay_seconds)
        if rule.error is not None:
            return _failed(rule.error)
        return _answered(request, answer_by_rule(rule, request), cut=rule.cut)


async def _body(request: Request) -> Any:
    size, parts = 0, []
    try:
        async for part in request.stream():
            size += len(part)
            if size > _LARGEST_BODY_BYTES:
                raise RequestInvalid("the body", f"at most {_LARGEST_BODY_BYTES} bytes")
            parts.append(part)
        return json.loads(b"".join(parts))
    except (ValueError, RecursionError, ClientDisconnect) as error:
        raise RequestInvalid("the body", "JSON") from error


def _answered(request: ChatRequest, told: Answer, *, cut: bool = False) -> Response:
    if not request.stream:
        body = json.dumps(replies.completion(request, told), ensure_ascii=False)
        content = body.encode("utf-8", "replace")
        if cut:
            return _Cut(_each([content[: len(content) // 2]]), media_type="application/json")
        return Response(content, media_type="application/json")
    pieces = [*replies.chunks(request, told), replies.DONE]
    if cut:
        return _Cut(_each(pieces[: len(pieces) // 2]), media_type="text/event-stream")
    return StreamingResponse(_each(pieces), media_type="text/event-stream")


async def _each(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        # One write a piece, and others take their turn in between.
        await asyncio.sleep(0)


class _Cut(StreamingResponse):
    """Says that more is to come and returns: the server cannot but cut the connection."""

    async def stream_response(self, send: Send) -> None:
        """Send what there is."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for part in self.body_iterator:
            await send({"type": "http.response.body", "body": part, "more_body": True})


def _failed(error: ScriptedError) -> Response:
    response = _refusal(error.status, error.message, "scripted_error")
    if error.retry_after_seconds is not None:
        response.headers["retry-after"] = f"{error.retry_after_seconds:g}"
    return response


def _refusal(status: int, message: str, kind: str, parameter: str | None = None) -> JSONResponse:
    return JSONResponse(replies.error(message, kind=kind, parameter=parameter), status_code=status)


async def _models(_request: Request) -> Response:
    model = {"id": "rehearsal", "object": "model", "created": 0, "owned_by": "runmesh"}
    return JSONResponse({"object": "list", "data": [model]})


async def _embeddings(http: Request) -> Response:
    body = await _body(http)
    given = body.get("input") if isinstance(body, dict) else None
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise RequestInvalid("input", "a text or a list of texts")
    dimension = body.get("dimensions", DIMENSION)
    if not isinstance(dimension, int) or not 0 < dimension <= _MOST_DIMENSIONS:
        raise RequestInvalid("dimensions", f"a whole number from 1 to {_MOST_DIMENSIONS}")
    vectors: list[Any] = [embed(text, dimension=dimension) for text in texts]
    if body.get("encoding_format") == "base64":
        vectors = [
            base64.b64encode(struct.pack(f"<{dimension}f", *each)).decode() for each in vectors
        ]
    return JSONResponse(replies.embeddings(str(body.get("model", "")), vectors, texts))


async def _rerank(http: Request) -> Response:
    body = await _body(http)
    query = body.get("query") if isinstance(body, dict) else None
    if not isinstance(query, str):
        raise RequestInvalid("query", "a text")
    documents = body.get("documents")
    if not isinstance(documents, list) or not all(isinstance(d, str) for d in documents):
        raise RequestInvalid("documents", "a list of texts")
    most = body.get("top_n")
    places = rerank(query, documents)[: most if isinstance(most, int) else None]
    results = [{"index": index, "relevance_score": score} for index, score in places]
    count = replies.tokens(query) + sum(map(replies.tokens, documents))
    return JSONResponse(
        {
            "model": str(body.get("model", "")),
            "results": results,
            "usage": {"prompt_tokens": count, "total_tokens": count},
        }
    )
