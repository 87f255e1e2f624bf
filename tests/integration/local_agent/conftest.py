"""A server for the models."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.models.torture_server import TortureServer


@pytest.fixture
async def server() -> AsyncIterator[TortureServer]:
    """Gives a server that answers as it is told to."""
    async with TortureServer().serving() as serving:
        yield serving
