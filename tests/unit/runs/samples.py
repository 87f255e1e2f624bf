"""Events, agents and frames to work on: ordinary ones, of which a test changes what it is about."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from runmesh.v1 import event_pb2, result_pb2, run_pb2, types_pb2

from host_service.agents.agent import Agent
from host_service.registry.frames import Frame, FrameReader
from host_service.runs.event import Event, known

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
RUNNER = "plugin:acme/desk/default"


def an_envelope(**changes: Any) -> event_pb2.EventEnvelope:
    """Return a message of ann in a room, with all that a binding may ask for."""
    fields: dict[str, Any] = {
        "event_id": "event-1",
        "type": "message.received",
        "source": event_pb2.EVENT_SOURCE_PLATFORM,
        "source_event_name": "GroupMessage",
        "workspace_id": "acme",
        "bot_id": "desk",
        "conversation_id": "room",
        "thread_id": "topic",
        "actor": event_pb2.Actor(type="user", id="ann"),
        "input": event_pb2.EventInput(text="hello"),
    }
    return event_pb2.EventEnvelope(**(fields | changes))


def an_event(**changes: Any) -> Event:
    """Return that message as the host has taken it in."""
    return known(an_envelope(**changes), received_at=NOON)


def an_agent(**changes: Any) -> Agent:
    """Return an agent with default policies."""
    fields: dict[str, Any] = {"id": "helper", "runner_id": RUNNER}
    return Agent(**(fields | changes))


def a_delta(text: str, *, id: str = "", reasoning: str = "") -> result_pb2.MessageDelta:
    """Return a piece of a message."""
    return result_pb2.MessageDelta(message_id=id, text=text, reasoning_text=reasoning)


def a_message(text: str, *, id: str = "") -> types_pb2.ChatMessage:
    """Return a whole message of one text part, or of none for no text."""
    return types_pb2.ChatMessage(
        message_id=id,
        role=types_pb2.CHAT_ROLE_ASSISTANT,
        parts=[types_pb2.ContentPart(text=text)] if text else [],
    )


def a_result(sequence: int, **payload: Any) -> result_pb2.RunResult:
    """Return a result of the run `run-1`."""
    return result_pb2.RunResult(run_id="run-1", sequence=sequence, **payload)


def a_frame(results: Iterable[result_pb2.RunResult]) -> Frame:
    """Return results as they arrive: through their bytes."""
    return FrameReader().read(run_pb2.RunResponse(results=list(results)).SerializeToString())
