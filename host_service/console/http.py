"""The HTTP listener: health for load balancers and orchestrators."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

Readiness = Callable[[], Awaitable[dict[str, str]]]


class HttpServer:
    """Serves `/healthz` (the process answers) and `/readyz` (it would take an event now).

    Args:
        listener: A socket that listens.
        readiness: Returns what is not ready, by name; empty when everything is.
        context: TLS; None: there is none.
    """

    def __init__(
        self,
        *,
        listener: socket.socket,
        readiness: Readiness,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._listener = listener
        config = uvicorn.Config(
            _application(readiness),
            log_config=None,
            lifespan="off",
            access_log=False,
            timeout_graceful_shutdown=1,
            ssl_context_factory=_always(context) if context is not None else None,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to serve."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]))

    async def stop(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


def _always(
    context: ssl.SSLContext,
) -> Callable[[uvicorn.Config, Callable[[], ssl.SSLContext]], ssl.SSLContext]:
    return lambda _config, _default: context


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: signals are the host's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def _application(readiness: Readiness) -> Starlette:
    async def healthz(_request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def readyz(_request: Request) -> JSONResponse:
        missing = await readiness()
        return JSONResponse(
            {"status": "not ready" if missing else "ready", "missing": missing},
            status_code=503 if missing else 200,
        )

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz)])
