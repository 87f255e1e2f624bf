"""All that this host offers to runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from host_service.actions.desk import ActionDesk
from host_service.capabilities.actions import Actions
from host_service.capabilities.artifacts import Artifacts
from host_service.capabilities.events import Events
from host_service.capabilities.history import History
from host_service.capabilities.knowledge import Knowledge
from host_service.capabilities.models import Models
from host_service.capabilities.prompt import Prompt
from host_service.capabilities.recorded_tools import RecordedTools
from host_service.capabilities.state import State
from host_service.capabilities.steering import Steering
from host_service.capabilities.storage import Storage
from host_service.capabilities.tool_calls import ToolCalls
from host_service.capabilities.tools import Tools
from host_service.capabilities.transcript_pages import TranscriptPages
from host_service.capabilities.uploads import Uploads
from host_service.knowledge.retrieval import Retrieval
from host_service.limits import Limits
from host_service.models.calls import ModelCalls
from host_service.pages import PageTokens
from host_service.runs.steering import SteeringBox
from host_service.telemetry import Telemetry
from host_service.tools.servers import ToolServers
from stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What stands behind HostAPI, one noun each."""

    models: Models
    tools: Tools
    knowledge: Knowledge
    history: History
    events: Events
    artifacts: Artifacts
    state: State
    storage: Storage
    prompt: Prompt
    actions: Actions
    steering: Steering


def offer(
    *,
    stores: Stores,
    transcript: TranscriptPages,
    uploads: Uploads,
    pages: PageTokens,
    limits: Limits,
    desk: ActionDesk,
    models: ModelCalls,
    tool_servers: ToolServers,
    retrieval: Retrieval,
    telemetry: Telemetry,
    steering_of: Callable[[str], SteeringBox | None],
    clock: Callable[[], datetime],
) -> Capabilities:
    """Return all of it.

    Args:
        stores: What it works on.
        transcript: Reads and encodes pages of the transcript.
        uploads: Takes artifacts in.
        pages: Makes page tokens.
        limits: How much is too much.
        desk: Judges and executes actions.
        models: Asks models.
        tool_servers: Offer tools.
        retrieval: Searches knowledge bases.
        telemetry: Traces.
        steering_of: Returns what waits for an active run; None for any other.
        clock: Tells the time.
    """
    return Capabilities(
        models=Models(calls=models, artifacts=stores.artifacts, limits=limits, clock=clock),
        tools=Tools(
            servers=tool_servers,
            calls=ToolCalls(
                servers=tool_servers,
                artifacts=stores.artifacts,
                limits=limits,
                telemetry=telemetry,
                clock=clock,
            ),
            recorded=RecordedTools(ledger=stores.ledger),
        ),
        knowledge=Knowledge(pages=pages, retrieval=retrieval),
        history=History(transcript=transcript, pages=pages),
        events=Events(log=stores.events, pages=pages, limits=limits),
        artifacts=Artifacts(artifacts=stores.artifacts, uploads=uploads, limits=limits),
        state=State(store=stores.state, pages=pages, limits=limits),
        storage=Storage(store=stores.storage, pages=pages),
        prompt=Prompt(),
        actions=Actions(desk=desk, log=stores.events, clock=clock),
        steering=Steering(box_of=steering_of, clock=clock),
    )
