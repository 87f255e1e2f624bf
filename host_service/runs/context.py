"""What a runner is handed: the context, projected from event, agent and frozen rights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from google.protobuf.duration_pb2 import Duration
from runmesh.v1 import context_pb2, event_pb2, types_pb2

from host_service.agents.agent import Agent
from host_service.authorization.snapshot import Snapshot
from host_service.runs.artifact_refs import brings_artifacts, hand_to_run
from host_service.runs.cursors import Cursors
from host_service.runs.event import Event
from host_service.runs.given import resources_of

PROTOCOL_VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a run's context says of its host and its start.

    Attributes:
        host_id: The host.
        host_version: Its version.
        trace_id: 32 hexadecimal digits.
        deadline: When the host ends the run; None: never.
        latest_position: The newest transcript position before the event; None: there is none.
    """

    host_id: str
    host_version: str
    trace_id: str
    deadline: datetime | None
    latest_position: int | None


def build_context(
    *,
    run_id: str,
    event: Event,
    agent: Agent,
    binding_id: str | None,
    session_key: str,
    config_json: str,
    snapshot: Snapshot,
    circumstances: Circumstances,
) -> tuple[context_pb2.RunContext, int]:
    """Return the context, and how many parts of the input were left out for a text-only runner."""
    envelope = event.envelope
    context = context_pb2.RunContext(
        run_id=run_id,
        trigger=context_pb2.Trigger(type=envelope.type, source=envelope.source),
        event=event_context(envelope),
        input=envelope.input,
        delivery=envelope.delivery
        if envelope.HasField("delivery")
        else event_pb2.DeliveryContext(surface="api"),
        resources=resources_of(snapshot),
        context=_access(event, snapshot, circumstances),
        state=context_pb2.StateSnapshot(),
        runtime=_runtime(agent, circumstances),
        agent_id=agent.id,
        binding_id=binding_id or "",
        session_key=session_key,
        config_json=config_json,
        metadata=envelope.metadata,
    )
    context.trigger.time.FromDatetime(event.received_at)
    if envelope.conversation_id:
        context.conversation.CopyFrom(_conversation(envelope))
    if envelope.HasField("actor"):
        context.actor.CopyFrom(envelope.actor)
    if envelope.HasField("subject"):
        context.subject.CopyFrom(envelope.subject)
    if envelope.HasField("adapter_extra_json"):
        context.adapter_json = envelope.adapter_extra_json
    return context, _fit(context.input, envelope, snapshot)


def fitting_input(
    envelope: event_pb2.EventEnvelope, snapshot: Snapshot
) -> tuple[event_pb2.EventInput, int]:
    """Return an event's input as a run gets it, and how many parts of it were left out."""
    content = event_pb2.EventInput()
    content.CopyFrom(envelope.input)
    return content, _fit(content, envelope, snapshot)


def _fit(
    content: event_pb2.EventInput, envelope: event_pb2.EventEnvelope, snapshot: Snapshot
) -> int:
    if brings_artifacts(envelope):
        hand_to_run(content, snapshot)
    return 0 if "multimodal_input" in snapshot.capabilities else _keep_text(content)


def event_context(envelope: event_pb2.EventEnvelope) -> context_pb2.EventContext:
    """Return what a runner is told of an event beside its input."""
    context = context_pb2.EventContext(
        event_id=envelope.event_id,
        type=envelope.type,
        source=envelope.source,
        source_event_name=envelope.source_event_name,
    )
    if envelope.HasField("time"):
        context.time.CopyFrom(envelope.time)
    if envelope.HasField("raw_ref"):
        context.raw_ref.CopyFrom(envelope.raw_ref)
    if envelope.HasField("data_json"):
        context.data_json = envelope.data_json
    return context


def _conversation(envelope: event_pb2.EventEnvelope) -> context_pb2.Conversation:
    return context_pb2.Conversation(
        conversation_id=envelope.conversation_id,
        thread_id=envelope.thread_id,
        launcher_type=envelope.metadata.get("launcher_type", ""),
        launcher_id=envelope.metadata.get("launcher_id", ""),
        sender_id=envelope.actor.id,
        bot_id=envelope.bot_id,
        workspace_id=envelope.workspace_id,
    )


def _access(
    event: Event, snapshot: Snapshot, circumstances: Circumstances
) -> context_pb2.ContextAccess:
    latest = circumstances.latest_position
    takes_place = event.is_spoken and bool(event.conversation_key)
    access = context_pb2.ContextAccess(
        conversation_id=event.envelope.conversation_id,
        thread_id=event.envelope.thread_id,
        latest_cursor=_cursor(event, latest) if latest is not None else "",
        has_history_before=latest is not None,
        inline_policy=context_pb2.InlinePolicy(
            mode=context_pb2.INLINE_MODE_CURRENT_EVENT,
            delivered_count=1,
            reason="history is pulled, never inlined",
        ),
        available_apis=context_pb2.AvailableApis(
            history_page=snapshot.grants("history", "page"),
            history_search=snapshot.grants("history", "search"),
            event_get=snapshot.grants("events", "get"),
            event_page=snapshot.grants("events", "page"),
            artifact_metadata=snapshot.grants("artifacts", "metadata"),
            artifact_read=snapshot.grants("artifacts", "read"),
            artifact_create=snapshot.grants("artifacts", "create"),
            state=bool(snapshot.state_keys),
            storage=bool(snapshot.storage),
            prompt=True,
            steering="steering" in snapshot.capabilities,
        ),
    )
    if takes_place:
        access.event_position = (latest or 0) + 1
    return access


def _runtime(agent: Agent, circumstances: Circumstances) -> context_pb2.RuntimeContext:
    runtime = context_pb2.RuntimeContext(
        host_id=circumstances.host_id,
        host_version=circumstances.host_version,
        protocol_version=PROTOCOL_VERSION,
        trace_id=circumstances.trace_id,
        attempt=1,
    )
    if circumstances.deadline is not None:
        runtime.deadline.FromDatetime(circumstances.deadline)
        runtime.timeout.CopyFrom(duration(agent.timeout_seconds))
    return runtime


def duration(seconds: float) -> Duration:
    """Return seconds as a protobuf duration."""
    message = Duration()
    message.FromNanoseconds(round(seconds * 1e9))
    return message


def place_in_history(context: context_pb2.RunContext, event: Event, latest: int | None) -> None:
    """Say where the event stands in its conversation, once that is known."""
    access = context.context
    if latest is not None:
        access.latest_cursor = _cursor(event, latest)
        access.has_history_before = True
    if event.is_spoken and event.conversation_key:
        access.event_position = (latest or 0) + 1


def _cursor(event: Event, position: int) -> str:
    return Cursors.of(event.conversation_key).encode(position)


def _keep_text(content: event_pb2.EventInput) -> int:
    """Leave out what is not text; return how many parts and attachments that were."""
    kept: Sequence[types_pb2.ContentPart] = [
        part for part in content.parts if part.HasField("text")
    ]
    left_out = len(content.parts) - len(kept) + len(content.attachments)
    if left_out:
        del content.parts[:]
        content.parts.extend(kept)
        del content.attachments[:]
    return left_out
