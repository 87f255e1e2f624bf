"""A stand-in host that serves the local agent."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from local_agent.main import LocalAgent

from runner_sdk.testing import StandInHost

PRIMARY = "primary"
FALLBACK = "fallback"
CONFIG: Mapping[str, Any] = {"model": PRIMARY}
BOTH: Mapping[str, Any] = {"model": {"primary": PRIMARY, "fallbacks": [FALLBACK]}}


@contextlib.asynccontextmanager
async def agent() -> AsyncIterator[StandInHost]:
    async with StandInHost(LocalAgent()) as host:
        yield host
