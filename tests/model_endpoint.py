"""A model that somebody else serves: the rehearsal model as an address, with a key of its own."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from host_service.rehearsal.server import RehearsalServer


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """Where a model is served.

    Attributes:
        base_url: Its address.
        key: What it is called with.
    """

    base_url: str
    key: str


@contextmanager
def model_endpoint(script: Path | None = None) -> Iterator[ModelEndpoint]:
    """Serves a model on a thread of its own, so that a test may wait for whoever calls it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        server = _made(loop)
        starting = asyncio.run_coroutine_threadsafe(server.base_url(script), loop)
        yield ModelEndpoint(starting.result(30), server.key)
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _made(loop: asyncio.AbstractEventLoop) -> RehearsalServer:
    async def make() -> RehearsalServer:
        return RehearsalServer()

    return asyncio.run_coroutine_threadsafe(make(), loop).result(30)
