"""An event on its way into the host: checked, completed, and known by its keys."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from google.protobuf.message import Message
from runmesh.v1 import event_pb2

from host_service.authorization.snapshot import EventIdentity
from host_service.errors import AlreadyExists, FieldFault, InvalidArgument, PayloadTooLarge
from host_service.identity import join_key, new_id
from host_service.limits import Limits
from host_service.runs.artifact_refs import artifact_ids
from host_service.runs.transcript import item_of_input
from host_service.validation.adapter_extra import filter_adapter_extra
from host_service.validation.digest import event_digest
from stores.records import EventRecord, TranscriptItem

_SUMMARY_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event that the host has taken in.

    Attributes:
        envelope: As it came, with what was absent filled in.
        received_at: When it came.
        has_own_id: Whether its source gave it an id, so that a redelivery can be recognised.
        conversation_key: Known everywhere by (workspace, bot, conversation, thread); empty: none.
        digest: Of its content as it came: type, conversation, actor, subject, input and data.
        stored: Ids of the artifacts that were made for it of bytes in it.
    """

    envelope: event_pb2.EventEnvelope
    received_at: datetime
    has_own_id: bool
    conversation_key: str
    digest: bytes
    stored: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """What happened."""
        return self.envelope.type

    @property
    def is_spoken(self) -> bool:
        """Whether it says something, so that a conversation shows it."""
        content = self.envelope.input
        return bool(content.text or content.parts or content.attachments)

    def scope_value(self, scope_field: str) -> str:
        """Return the value of a field that bindings are scoped by; empty where there is none."""
        if scope_field == "actor_id":
            return self.envelope.actor.id
        value: str = getattr(self.envelope, scope_field)
        return value

    def field_text(self, path: str) -> str | None:
        """Return a field by its path in the contract, as text; None where there is none."""
        if path.startswith("data."):
            return _json_text(self.envelope.data_json, path.removeprefix("data."))
        return _message_text(self.envelope, path)

    def identity(self) -> EventIdentity:
        """Return where it belongs."""
        envelope = self.envelope
        return EventIdentity(
            workspace=envelope.workspace_id,
            bot=envelope.bot_id,
            source=source_name(envelope.source),
            event_id=envelope.event_id,
            conversation_id=envelope.conversation_id,
            thread_id=envelope.thread_id,
            conversation_key=self.conversation_key,
            actor_type=envelope.actor.type,
            actor_id=envelope.actor.id,
            subject_type=envelope.subject.type,
            subject_id=envelope.subject.id,
            artifacts=artifact_ids(envelope),
        )

    def record(self, run_id: str | None) -> EventRecord:
        """Return it as the event log keeps it."""
        envelope = self.envelope
        return EventRecord(
            workspace=envelope.workspace_id,
            bot=envelope.bot_id,
            source=source_name(envelope.source),
            event_id=envelope.event_id,
            type=envelope.type,
            digest=self.digest,
            conversation_key=self.conversation_key,
            occurred_at=envelope.time.ToDatetime(UTC) if envelope.HasField("time") else None,
            received_at=self.received_at,
            input_summary=envelope.input.text[:_SUMMARY_CHARACTERS],
            envelope=envelope.SerializeToString(),
            run_id=run_id,
        )

    def transcript_item(self, run_id: str) -> TranscriptItem | None:
        """Return what the conversation shows of it; None if it says nothing or belongs to none."""
        envelope = self.envelope
        if not self.conversation_key or not self.is_spoken:
            return None
        return item_of_input(
            envelope,
            conversation_key=self.conversation_key,
            run_id=run_id,
            created_at=self.received_at,
        )


def source_name(source: int) -> str:
    """Return an event source as the stores keep it, such as `api`."""
    if source in event_pb2.EventSource.values():
        return (
            event_pb2.EventSource.Name(event_pb2.EventSource.ValueType(source))
            .removeprefix("EVENT_SOURCE_")
            .lower()
        )
    return f"source_{source}"


def take_in(envelope: event_pb2.EventEnvelope, *, received_at: datetime, limits: Limits) -> Event:
    """Complete an event whose fields were checked, and derive its keys.

    The envelope is the caller's to give away: it is changed in place.

    Raises:
        PayloadTooLarge: It is larger than an event may be.
        InvalidArgument: A thread without a conversation.
    """
    size = envelope.ByteSize()
    if size > limits.event_bytes:
        raise PayloadTooLarge("the event", size_bytes=size, limit_bytes=limits.event_bytes)
    if envelope.thread_id and not envelope.conversation_id:
        raise InvalidArgument(
            [FieldFault("event.thread_id", "absent without a conversation_id", "a thread alone")]
        )
    has_own_id = bool(envelope.event_id)
    if not has_own_id:
        envelope.event_id = new_id()
    if not envelope.source:
        envelope.source = event_pb2.EVENT_SOURCE_API
    if envelope.HasField("adapter_extra_json"):
        kept, _ = filter_adapter_extra(envelope.adapter_extra_json)
        if kept is None:
            envelope.ClearField("adapter_extra_json")
        else:
            envelope.adapter_extra_json = kept
    return known(envelope, received_at=received_at, has_own_id=has_own_id)


def known(
    envelope: event_pb2.EventEnvelope,
    *,
    received_at: datetime,
    has_own_id: bool = True,
    digest: bytes | None = None,
) -> Event:
    """Return a complete envelope as an event: one just taken in, or one from the log.

    Args:
        envelope: The envelope.
        received_at: When it came.
        has_own_id: Whether its source gave it an id.
        digest: What it was logged with; None: that of the envelope.
    """
    return Event(
        envelope=envelope,
        received_at=received_at,
        has_own_id=has_own_id,
        conversation_key=conversation_key(
            workspace=envelope.workspace_id,
            bot=envelope.bot_id,
            conversation=envelope.conversation_id,
            thread=envelope.thread_id,
        ),
        digest=event_digest(envelope) if digest is None else digest,
    )


def conversation_key(*, workspace: str, bot: str, conversation: str, thread: str) -> str:
    """Return what a conversation is known by everywhere; empty for none."""
    return join_key(workspace, bot, conversation, thread) if conversation else ""


def already_exists(event: Event) -> AlreadyExists:
    """Return the refusal of an event that is known with other content."""
    return AlreadyExists(
        f"event {event.envelope.event_id!r} was delivered before with other content",
        facts={"resource": event.envelope.event_id},
    )


def _message_text(message: Message, path: str) -> str | None:
    name, _, rest = path.partition(".")
    descriptor = message.DESCRIPTOR.fields_by_name.get(name)
    if descriptor is None:
        return None
    value = getattr(message, name)
    if descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry:
        text: str | None = value.get(rest)
        return text
    if descriptor.is_repeated:
        return None
    if descriptor.message_type is not None:
        return _message_text(value, rest) if rest and message.HasField(name) else None
    if rest or (descriptor.has_presence and not message.HasField(name)):
        return None
    if descriptor.enum_type is not None:
        entry = descriptor.enum_type.values_by_number.get(value)
        return entry.name if entry else str(value)
    if isinstance(value, bytes):
        # A digest is no text that anybody would compare by hand.
        return None
    return value if isinstance(value, str) else json.dumps(value)


def _json_text(text: str, path: str) -> str | None:
    if not text:
        return None
    value = json.loads(text)
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    )
