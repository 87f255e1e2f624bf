"""The plain records that stores take and return.

Times are aware datetimes and come back in UTC with microseconds. Identities that an event does
not have are the empty string. Bytes are opaque to the layer. Text is any valid Unicode except
U+0000. Integers are 64 bits, signed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
Cursor = TypeVar("Cursor")


class RunStatus(IntEnum):
    """Where a run stands. A run's status only ever grows, and never leaves a terminal one."""

    ACCEPTED = 1
    QUEUED = 2
    RUNNING = 3
    COMPLETED = 4
    FAILED = 5
    CANCELLED = 6
    TIMED_OUT = 7

    @property
    def is_terminal(self) -> bool:
        """Whether a run with this status has ended."""
        return self >= RunStatus.COMPLETED


@dataclass(frozen=True, slots=True)
class Page(Generic[Item, Cursor]):
    """Some items in order, and where the next ones begin.

    Attributes:
        items: The items of this page.
        next_cursor: What to hand in for the following page; `None` if there is nothing more.
    """

    items: tuple[Item, ...]
    next_cursor: Cursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """An event as it came in.

    Attributes:
        workspace: Workspace id, or empty.
        bot: Bot id, or empty.
        source: Where the event comes from.
        event_id: Its id. Workspace, bot, source and event id together are unique.
        type: Event type, such as `message.received`.
        digest: Digest of the content, by which a redelivery is told from a conflict.
        conversation_key: The conversation it belongs to.
        occurred_at: When it happened, if the source said so.
        received_at: When the host took it in.
        input_summary: The beginning of its input, up to 1,000 characters.
        envelope: The event itself, opaque.
        run_id: The run it became; `None` while no binding matched it.
    """

    workspace: str
    bot: str
    source: str
    event_id: str
    type: str
    digest: bytes
    conversation_key: str
    received_at: datetime
    envelope: bytes
    occurred_at: datetime | None = None
    input_summary: str = ""
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """A durable fact of a run in the event log: a tool call, an artifact, an action, an error.

    Attributes:
        run_id: The run it is a fact of.
        kind: What happened, such as `tool_call_started`.
        at: When.
        payload: The fact itself, opaque.
        sequence: The delivered number of the result that told it, if a result did.
        position: Its place in the log; 0 until stored.
    """

    run_id: str
    kind: str
    at: datetime
    payload: bytes
    sequence: int | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed."""

    code: str
    message: str
    retryable: bool = False
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a run used of one model, cumulative; `None` means unknown, never zero."""

    model_id: str
    input_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RunWarning:
    """Something about a run that its author or operator should know, and that did not end it."""

    code: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run, as the ledger has it.

    Attributes:
        run_id: The run's id, a UUIDv7.
        workspace: Workspace of its event, or empty.
        bot: Bot of its event, or empty.
        event_source: Source of its event.
        event_id: Id of its event.
        status: Where it stands.
        agent_id: The agent that answers.
        agent_revision: The agent's revision when the event was accepted.
        runner_id: The runner that the agent names.
        conversation_key: The conversation it belongs to.
        session_key: The session it belongs to.
        created_at: When it was accepted.
        host_id: The host that owns it.
        host_incarnation: The start of that host which owns it.
        agent_snapshot: The agent as it was, opaque.
        binding_id: The binding that matched; `None` if the agent was named.
        instance_id: The runner instance that has it, once picked.
        queued_at: When it began to wait its turn.
        started_at: When its runner was called.
        first_delta_at: When the first of it was shown.
        ended_at: When it ended.
        deadline: When it will be cut off.
        usage: What it used, by model.
        failure: Why it failed, if it did.
        warnings: Its warnings, oldest first.
        last_sequence: The highest delivered number among its durable results; once it has
            ended, the number of its terminal result.
        reserved_sequence: The highest number that may have been delivered; what is delivered
            after a crash stands above it.
        latest_cursor_position: The newest transcript position of its conversation before its
            own event, `None` if there was none. Set by the ledger when it accepts the run.
        steered_into: The run that its event was handed to. One that was taken up there ends with
            this; one that was not loses it when it begins to wait its turn.
        replay_of: The run that it replays; `None` for a run that its event started.
    """

    run_id: str
    workspace: str
    bot: str
    event_source: str
    event_id: str
    agent_id: str
    agent_revision: int
    runner_id: str
    conversation_key: str
    session_key: str
    created_at: datetime
    host_id: str
    host_incarnation: str
    agent_snapshot: bytes
    status: RunStatus = RunStatus.ACCEPTED
    binding_id: str | None = None
    instance_id: str | None = None
    queued_at: datetime | None = None
    started_at: datetime | None = None
    first_delta_at: datetime | None = None
    ended_at: datetime | None = None
    deadline: datetime | None = None
    usage: tuple[Usage, ...] = ()
    failure: Failure | None = None
    warnings: tuple[RunWarning, ...] = ()
    last_sequence: int = 0
    reserved_sequence: int = 0
    latest_cursor_position: int | None = None
    steered_into: str | None = None
    replay_of: str | None = None


@dataclass(frozen=True, slots=True)
class RunNotes:
    """What is kept of a run for whoever wants it explained.

    Attributes:
        resolution: How it came to its agent, opaque text; `None` if that was not kept.
        course: What it was granted and when what happened, opaque text; `None` before it was
            written.
    """

    resolution: str | None = None
    course: str | None = None


@dataclass(frozen=True, slots=True)
class ResultRecord:
    """One durable result of a run, as it was delivered.

    Attributes:
        run_id: The run.
        sequence: Its delivered number; unique within the run.
        first_sequence: The first delivered number it covers.
        runner_sequence: The runner's own number for it.
        kind: Which result it is, such as `message_completed`.
        payload: The result itself, opaque.
        at: When it was delivered.
    """

    run_id: str
    sequence: int
    first_sequence: int
    runner_sequence: int
    kind: str
    payload: bytes
    at: datetime


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A piece of a message in progress, so that a crash of the host loses nothing shown.

    A message's checkpoints, by their numbers, hold its text piece by piece: what was saved once is
    not written again, however long the message grows.

    Attributes:
        run_id: The run.
        message_id: The message.
        text: Its text since the checkpoint before.
        reasoning: Its reasoning text since the checkpoint before.
        sequence: The delivered number up to which the piece goes; unique within the message.
        at: When it was taken.
    """

    run_id: str
    message_id: str
    text: str
    reasoning: str
    sequence: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptItem:
    """One item of the conversation view.

    Attributes:
        transcript_id: Its id.
        conversation_key: The conversation it belongs to.
        workspace: Workspace id, or empty.
        bot: Bot id, or empty.
        event_id: The event it comes from.
        role: `user`, `assistant`, `system` or `tool`.
        kind: `message`, `tool_call`, `tool_result` or `system`.
        created_at: When it was said.
        content: Its structured content, opaque.
        text: Its text, never cut.
        run_id: The run it belongs to, if any.
        runner_id: The runner that said it, if one did.
        actor: Who said it, opaque.
        incomplete: Whether it was completed from a checkpoint after a crash.
        position: Its place in the conversation, counted from 1; 0 until stored.
    """

    transcript_id: str
    conversation_key: str
    workspace: str
    bot: str
    event_id: str
    role: str
    kind: str
    created_at: datetime
    content: bytes = b""
    text: str | None = None
    run_id: str | None = None
    runner_id: str | None = None
    actor: bytes | None = None
    incomplete: bool = False
    position: int = 0


class PlacedContent(NamedTuple):
    """The content of a transcript item, and its place in the conversation."""

    position: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What became of an event that was to start a run.

    Attributes:
        run: The run that the event has: the new one, or the one it already had.
        duplicate: Whether the event was a redelivery, so that nothing was written.
    """

    run: RunRecord
    duplicate: bool

    @property
    def latest_cursor_position(self) -> int | None:
        """The newest transcript position before the event's own item; `None` without any."""
        return self.run.latest_cursor_position


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Facts of one run that are stored together or not at all.

    Attributes:
        run_id: The run.
        host_incarnation: The incarnation that writes. If given, a run that another one owns by
            now takes nothing; a host always gives its own.
        results: Durable results.
        items: Transcript items.
        entries: Event log entries.
        checkpoints: Further pieces of messages in progress.
        dropped_checkpoints: Ids of messages whose checkpoints are needed no more.
        reserved_sequence: The highest number that may be delivered from now on; never lowers
            the stored one.
        first_delta_at: When the first of the run was shown; kept if already stored.
        usage: All of the run's usage so far, replacing what is stored; `None` leaves it.
        warnings: Further warnings.
        course: As in `RunNotes`, replacing what is stored; `None` leaves it.
    """

    run_id: str
    host_incarnation: str | None = None
    results: tuple[ResultRecord, ...] = ()
    items: tuple[TranscriptItem, ...] = ()
    entries: tuple[LogEntry, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    dropped_checkpoints: tuple[str, ...] = ()
    reserved_sequence: int | None = None
    first_delta_at: datetime | None = None
    usage: tuple[Usage, ...] | None = None
    warnings: tuple[RunWarning, ...] = ()
    course: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended.

    Attributes:
        run_id: The run.
        status: A terminal status.
        ended_at: When.
        last_sequence: The delivered number of its terminal result.
        failure: Why it failed, if it did.
        usage: What it used in all; `None` leaves what is stored.
        warnings: Further warnings, beside those recorded before.
        host_incarnation: As in `RunFacts`.
    """

    run_id: str
    status: RunStatus
    ended_at: datetime
    last_sequence: int
    failure: Failure | None = None
    usage: tuple[Usage, ...] | None = None
    warnings: tuple[RunWarning, ...] = ()
    host_incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs to list; what is `None` or empty does not narrow.

    Attributes:
        workspace: Runs of this workspace.
        bot: Runs of this bot.
        agent_id: Runs of this agent.
        conversation_key: Runs of this conversation.
        statuses: Runs that have one of these.
        created_after: Runs created at this time or later.
        created_before: Runs created before this time.
        replay_of: Runs that replay this run.
    """

    workspace: str | None = None
    bot: str | None = None
    agent_id: str | None = None
    conversation_key: str | None = None
    statuses: tuple[RunStatus, ...] = ()
    created_after: datetime | None = None
    created_before: datetime | None = None
    replay_of: str | None = None


@dataclass(frozen=True, slots=True)
class HostRecord:
    """A host that runs, or ran, on this database.

    Attributes:
        host_id: The host.
        incarnation: Its latest start.
        lease_until: Until when its runs are its own.
    """

    host_id: str
    incarnation: str
    lease_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRecord:
    """An agent, as an operator set it.

    Attributes:
        id: Its id.
        name: Its display name.
        runner_id: The runner it names.
        document: All of it as JSON text, kept as it came.
        enabled: Whether bindings may choose it.
        revision: Grows by one with each change; 0 until stored.
        created_at: When it was first stored; `None` until then.
        updated_at: When it last changed.
    """

    id: str
    name: str
    runner_id: str
    document: str
    enabled: bool = True
    revision: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingRecord:
    """A binding: which events reach which agent.

    Attributes:
        id: Its id.
        agent_id: The agent, which must be stored.
        document: All of it as JSON text, kept as it came.
        enabled: Whether it takes part in resolution.
        revision: Grows by one with each change; 0 until stored.
        created_at: When it was first stored; `None` until then.
        updated_at: When it last changed.
    """

    id: str
    agent_id: str
    document: str
    enabled: bool = True
    revision: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None


class CatalogueKind(StrEnum):
    """What the catalogue keeps beside agents and bindings."""

    MODEL = "model"
    KNOWLEDGE_BASE = "knowledge_base"
    TOOL_SERVER = "tool_server"
    PLUGIN = "plugin"
    POLICY = "policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueItem:
    """A model, knowledge base, tool server, plugin or policy, as an operator set it.

    Attributes:
        kind: Which of them.
        id: Its id; unique within its kind. A plugin's is `author/name`, a policy's the workspace.
        document: All of it as JSON text, kept as it came. It holds no secret: those are kept by
            (kind, id) and name in `Secrets`, and the document has the name.
        enabled: Whether it may be used.
        revision: Grows by one with each change; 0 until stored.
        created_at: When it was first stored; `None` until then.
        updated_at: When it last changed.
    """

    kind: CatalogueKind
    id: str
    document: str
    enabled: bool = True
    revision: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply of several records left in the catalogue, in the order they were given."""

    agents: tuple[AgentRecord, ...]
    bindings: tuple[BindingRecord, ...]
    items: tuple[CatalogueItem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyRecord:
    """An API key, without the key itself.

    Attributes:
        key_id: Its id, by which it is listed and revoked.
        name: What it is for.
        hash: Hash of the key; unique.
        role: `ingress`, `viewer` or `operator`.
        created_at: When it was made.
        workspace: The workspace it is limited to; `None` for no limit.
        bot: The bot it is limited to; `None` for no limit.
        expires_at: When it stops working; `None` for never.
        revoked_at: When it was revoked, if it was.
        last_used_at: When it was last used, as far as is known.
    """

    key_id: str
    name: str
    hash: bytes
    role: str
    created_at: datetime
    workspace: str | None = None
    bot: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachTokenRecord:
    """A token with which runners of one plugin attach to hosts, without the token itself.

    Attributes:
        token_id: Its id, by which it is listed and revoked.
        plugin_id: The plugin it was issued for, `author/name`.
        hash: Hash of the token; unique.
        created_at: When it was made.
        expires_at: When it stops working.
        revoked_at: When it was revoked, if it was.
        last_used_at: When a runner last attached with it, as far as is known.
    """

    token_id: str
    plugin_id: str
    hash: bytes
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactHeader:
    """What is said of an artifact by who creates it.

    Attributes:
        artifact_id: Its id: letters, digits and `._:~-`, beginning with a letter or digit.
        workspace: Workspace id, or empty.
        bot: Bot id, or empty.
        conversation_key: The conversation it belongs to.
        type: What it is for people and models, a word such as `image` or `tool_result`.
        created_at: When it was created.
        mime_type: Media type, or empty.
        name: File name to show, or empty; it has no separators, and never becomes a path here.
        summary: What is in it, or empty.
        run_id: The run that created it, if a run did.
        expires_at: From when on it is as if it did not exist; `None` for never.
    """

    artifact_id: str
    workspace: str
    bot: str
    conversation_key: str
    type: str
    created_at: datetime
    mime_type: str = ""
    name: str = ""
    summary: str = ""
    run_id: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRecord(ArtifactHeader):
    """An artifact that is stored.

    Attributes:
        size_bytes: How many bytes it has.
        sha256: Their digest, which artifacts with the same bytes share.
    """

    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection of orphans deleted.

    Attributes:
        artifacts: Expired artifacts.
        blobs: Blobs that no artifact referred to.
        size_bytes: How many bytes these had.
    """

    artifacts: int
    blobs: int
    size_bytes: int
