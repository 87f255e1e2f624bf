"""A torture server, and calls to models that it serves."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.models.asking import Asking
from tests.integration.models.torture_server import TortureServer


@pytest.fixture
async def server() -> AsyncIterator[TortureServer]:
    """Gives a server that answers as it is told to."""
    async with TortureServer().serving() as serving:
        yield serving


@pytest.fixture
async def asking(server: TortureServer) -> AsyncIterator[Asking]:
    """Gives calls to models that the server serves."""
    asking = Asking(server)
    yield asking
    await asking.close()
