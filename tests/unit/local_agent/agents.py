"""A stand-in host that serves the local agent."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from local_agent.main import LocalAgent

from runner_sdk.testing import RunOutcome, StandInHost

PRIMARY = "primary"
FALLBACK = "fallback"
CONFIG: Mapping[str, Any] = {"model": PRIMARY}
BOTH: Mapping[str, Any] = {"model": {"primary": PRIMARY, "fallbacks": [FALLBACK]}}


def questions(host: StandInHost, model_id: str = PRIMARY) -> list[Any]:
    """What a model was asked, in order: the requests."""
    return [
        call.request
        for call in host.calls
        if call.method == "StreamModel" and call.request.model_id == model_id
    ]


def texts(request: Any) -> list[str]:
    """The text of each message of a question."""
    return ["".join(part.text for part in message.parts) for message in request.messages]


def logged(outcome: RunOutcome) -> list[str]:
    """What the run's log says."""
    return [line.text for line in outcome.of_kind("log")]


@contextlib.asynccontextmanager
async def agent() -> AsyncIterator[StandInHost]:
    async with StandInHost(LocalAgent()) as host:
        yield host
