"""Records to fill stores with: ordinary ones, of which a test changes what it is about."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from stores import Stores
from stores.records import (
    AgentRecord,
    ApiKeyRecord,
    AttachTokenRecord,
    BindingRecord,
    Checkpoint,
    EventRecord,
    LogEntry,
    ResultRecord,
    RunEnd,
    RunFacts,
    RunRecord,
    RunStatus,
    TranscriptItem,
)

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return a time so many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def an_event(event_id: str = "event-1", **changes: Any) -> EventRecord:
    """Return an event of the conversation `talk`."""
    event = EventRecord(
        workspace="acme",
        bot="helper",
        source="api",
        event_id=event_id,
        type="message.received",
        digest=b"digest of the content",
        conversation_key="talk",
        received_at=NOON,
        envelope=b"the envelope",
        input_summary="hello",
    )
    return replace(event, **changes)


def a_run(run_id: str = "run-1", event: EventRecord | None = None, **changes: Any) -> RunRecord:
    """Return a run of an event, by default of one with the number of the run."""
    event = event or an_event(run_id.replace("run", "event"))
    run = RunRecord(
        run_id=run_id,
        workspace=event.workspace,
        bot=event.bot,
        event_source=event.source,
        event_id=event.event_id,
        agent_id="agent",
        agent_revision=3,
        runner_id="plugin:acme/helper/runner",
        conversation_key=event.conversation_key,
        session_key="session",
        created_at=NOON,
        host_id="host",
        host_incarnation="start-1",
        agent_snapshot=b"the agent as it was",
    )
    return replace(run, **changes)


def an_item(transcript_id: str = "item-1", **changes: Any) -> TranscriptItem:
    """Return a user's message in the conversation `talk`."""
    item = TranscriptItem(
        transcript_id=transcript_id,
        conversation_key="talk",
        workspace="acme",
        bot="helper",
        event_id="event-1",
        role="user",
        kind="message",
        created_at=NOON,
        text="hello",
    )
    return replace(item, **changes)


def a_result(run_id: str, sequence: int, **changes: Any) -> ResultRecord:
    """Return a result with a delivered number, which covers itself alone."""
    result = ResultRecord(
        run_id, sequence, sequence, sequence, "message_completed", b"result", NOON
    )
    return replace(result, **changes)


def an_entry(run_id: str = "run-1", kind: str = "tool_call_started", **changes: Any) -> LogEntry:
    """Return a log entry."""
    return replace(LogEntry(run_id=run_id, kind=kind, at=NOON, payload=b"fact"), **changes)


def a_checkpoint(
    run_id: str = "run-1", message_id: str = "message-1", **changes: Any
) -> Checkpoint:
    """Return a checkpoint of a message in progress."""
    checkpoint = Checkpoint(run_id, message_id, "text so far", "thought so far", 4, NOON)
    return replace(checkpoint, **changes)


def an_end(run_id: str = "run-1", **changes: Any) -> RunEnd:
    """Return a successful end."""
    end = RunEnd(run_id=run_id, status=RunStatus.COMPLETED, ended_at=at(9), last_sequence=9)
    return replace(end, **changes)


def an_agent(id: str = "agent", **changes: Any) -> AgentRecord:
    """Return an agent."""
    agent = AgentRecord(id=id, name="Helper", runner_id="plugin:a/b/c", document='{"a": 1}')
    return replace(agent, **changes)


def a_binding(id: str = "binding", **changes: Any) -> BindingRecord:
    """Return a binding to the agent `agent`."""
    return replace(
        BindingRecord(id=id, agent_id="agent", document='{"scope": "global"}'), **changes
    )


def a_key(key_id: str = "key", **changes: Any) -> ApiKeyRecord:
    """Return an API key whose hash follows from its id."""
    key = ApiKeyRecord(
        key_id=key_id,
        name="laptop",
        hash=b"hash of " + key_id.encode(),
        role="viewer",
        created_at=NOON,
    )
    return replace(key, **changes)


def an_attach_token(token_id: str = "token", **changes: Any) -> AttachTokenRecord:
    """Return an attach token whose hash follows from its id."""
    token = AttachTokenRecord(
        token_id=token_id,
        plugin_id="acme/helpdesk",
        hash=b"hash of " + token_id.encode(),
        created_at=NOON,
        expires_at=at(3600),
    )
    return replace(token, **changes)


async def accepted(stores: Stores, run_id: str = "run-1", **changes: Any) -> RunRecord:
    """Store a run with an event of its own and no item, and return it."""
    run = a_run(run_id, **changes)
    event = an_event(
        run.event_id,
        workspace=run.workspace,
        bot=run.bot,
        source=run.event_source,
        conversation_key=run.conversation_key,
    )
    return (await stores.ledger.accept(event, run).committed).run


async def told(stores: Stores, run_id: str, *items: TranscriptItem) -> None:
    """Store transcript items as facts of a run."""
    await stores.ledger.record(RunFacts(run_id=run_id, items=items))
