"""The rehearsal model as a server on loopback, started when it is first called.

::

    address_of --> start, once --> uvicorn in the host's event loop, on a port of its own
    a call --> /SLUG/v1/chat/completions: the key is checked, then the script of SLUG, then `answer`

Nobody reaches it without its key, which is random and nowhere but in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from host_service.rehearsal.script import ScriptFile

_HOST = "127.0.0.1"
_UNSCRIPTED = "plain"


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
        # With all that answers, which a host without a rehearsal never needs.
        from host_service.rehearsal.application import RehearsalApplication

        application = RehearsalApplication(key=self._key, scripts=self._scripts)
        listener = socket.create_server((_HOST, 0))
        config = uvicorn.Config(
            application.starlette(),
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
