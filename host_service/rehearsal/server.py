"""The rehearsal model as a server on loopback, started when it is first called.

::

    address_of --> start, once --> uvicorn in the host's event loop, on a port of its own
    a call --> /SLUG/v1/chat/completions: the key is checked, then the script of SLUG, then `answer`

Nobody reaches it without its key, which is random and nowhere but in this process.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn
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

_HOST = "127.0.0.1"
_LARGEST_BODY_BYTES = 64 * 1024 * 1024
_MOST_DIMENSIONS = 4096
_UNSCRIPTED = "plain"

Handler = Callable[[Request], Awaitable[Response]]


class RehearsalServer:
    """Serves the rehearsal model.

    Args:
        script: Rules for every model that has none of its own; None: there are none.
    """

    def __init__(self, *, script: ScriptFile | None = None) -> None:
        self._key = secrets.token_urlsafe(32)
        self._scripts: dict[str, ScriptFile | None] = {_UNSCRIPTED: script}
        self._starting = asyncio.Lock()
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._root = ""

    @property
    def key(self) -> str:
        """What every call must bring as its bearer token."""
        return self._key

    async def base_url(self, script: Path | None = None) -> str:
        """Return where it is served, started if it was not.

        Args:
            script: Rules of the model that is called; None: those for every model.

        Raises:
            ConfigurationError: The script will not do.
        """
        slug = _UNSCRIPTED if script is None else _slug(script)
        if slug not in self._scripts and script is not None:
            self._scripts[slug] = ScriptFile(script)
        async with self._starting:
            if self._server is None:
                await self._start()
        return f"{self._root}/{slug}/v1"

    async def close(self) -> None:
        """Stop serving. What is under way is cut."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            self._server.force_exit = True
            await self._serving
        self._server = self._serving = None

    async def _start(self) -> None:
        listener = socket.create_server((_HOST, 0))
        config = uvicorn.Config(
            self._application(),
            log_config=None,
            lifespan="off",
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        server = _Server(config)
        self._serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.serving.wait()
        self._root = f"http://{_HOST}:{listener.getsockname()[1]}"
        self._server = server

    def _application(self) -> Starlette:
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


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which are the host's, that says when it serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        self.serving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def _slug(script: Path) -> str:
    return hashlib.sha256(str(script).encode("utf-8", "surrogateescape")).hexdigest()[:16]


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
