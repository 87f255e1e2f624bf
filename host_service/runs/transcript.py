"""Items of the transcript: made of what was said, kept encoded, and shown without decoding them.

The content of a stored item is its `TranscriptItem` on the wire, all but its place: conversation,
thread and cursor are put behind it when it is shown. A page of ordinary items is made by putting
stored bytes together. What has more than text (parts, artifacts) is decoded to be shown, since a
reader may not want it all, and begins with another mark. A mark is a field that is set again
behind it, so that the content is a `TranscriptItem` with the mark as well.

Items that were stored before that have another content, and are made of their record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from runmesh.v1 import event_pb2, host_api_pb2, result_pb2, types_pb2

from host_service.identity import new_id
from stores.records import TranscriptItem

# `kind` and `role` not set: no message of any kind that was content before begins so.
_PLAIN = b"\x40\x00"
_RICH = b"\x38\x00"

_ROLES = {
    "system": types_pb2.CHAT_ROLE_SYSTEM,
    "user": types_pb2.CHAT_ROLE_USER,
    "assistant": types_pb2.CHAT_ROLE_ASSISTANT,
    "tool": types_pb2.CHAT_ROLE_TOOL,
}
_KINDS = {
    "message": host_api_pb2.TRANSCRIPT_KIND_MESSAGE,
    "tool_call": host_api_pb2.TRANSCRIPT_KIND_TOOL_CALL,
    "tool_result": host_api_pb2.TRANSCRIPT_KIND_TOOL_RESULT,
    "system": host_api_pb2.TRANSCRIPT_KIND_SYSTEM,
}
# What a runner's completed message is, by its role; whatever else it claims, the agent said it.
_OF_MESSAGES = {
    types_pb2.CHAT_ROLE_TOOL: ("tool", "tool_result"),
    types_pb2.CHAT_ROLE_SYSTEM: ("system", "system"),
}


def item_of_input(
    envelope: event_pb2.EventEnvelope,
    *,
    conversation_key: str,
    run_id: str | None,
    created_at: datetime,
) -> TranscriptItem:
    """Return the item of what an event says."""
    heard = envelope.input
    has_actor = envelope.HasField("actor")
    record = TranscriptItem(
        transcript_id=new_id(),
        conversation_key=conversation_key,
        workspace=envelope.workspace_id,
        bot=envelope.bot_id,
        event_id=envelope.event_id,
        run_id=run_id,
        role="user",
        kind="message",
        text=heard.text if heard.HasField("text") else _text_of(heard.parts),
        actor=envelope.actor.SerializeToString() if has_actor else None,
        created_at=created_at,
    )
    message = _bare(record)
    if has_actor:
        message.actor.CopyFrom(envelope.actor)
    _add(message, heard.parts, heard.attachments)
    return replace(record, content=_encoded(message))


def item_of_message(
    completed: result_pb2.MessageCompleted,
    *,
    conversation_key: str,
    workspace: str,
    bot: str,
    event_id: str,
    run_id: str,
    runner_id: str,
    created_at: datetime,
) -> TranscriptItem:
    """Return the item of a message that a run completed."""
    said = completed.message
    role, kind = _OF_MESSAGES.get(said.role, ("assistant", "message"))
    if said.tool_calls and not said.parts and role == "assistant":
        kind = "tool_call"
    record = TranscriptItem(
        transcript_id=new_id(),
        conversation_key=conversation_key,
        workspace=workspace,
        bot=bot,
        event_id=event_id,
        run_id=run_id,
        runner_id=runner_id,
        role=role,
        kind=kind,
        text=_text_of(said.parts),
        created_at=created_at,
        incomplete=completed.incomplete,
    )
    message = _bare(record)
    message.metadata.update(said.metadata)
    _add(message, said.parts, said.artifacts)
    return replace(record, content=_encoded(message))


def is_plain(content: bytes) -> bool:
    """Return whether the content of an item may be shown as it is, its place put behind it."""
    return content.startswith(_PLAIN)


def message_of(content: bytes) -> host_api_pb2.TranscriptItem | None:
    """Return the item that a content is, all but its place; None for one from before."""
    if content.startswith((_PLAIN, _RICH)):
        return host_api_pb2.TranscriptItem.FromString(content)
    return None


def message_of_record(record: TranscriptItem) -> host_api_pb2.TranscriptItem:
    """Return an item as the contract has it, all but its place."""
    stored = message_of(record.content)
    if stored is not None:
        return stored
    message = _bare(record)
    if record.actor is not None:
        message.actor.MergeFromString(record.actor)
    if record.role == "user":
        heard = event_pb2.EventInput.FromString(record.content)
        _add(message, heard.parts, heard.attachments)
    else:
        said = types_pb2.ChatMessage.FromString(record.content)
        message.metadata.update(said.metadata)
        _add(message, said.parts, said.artifacts)
    return message


def _encoded(message: host_api_pb2.TranscriptItem) -> bytes:
    mark = _RICH if message.parts or message.artifacts else _PLAIN
    return mark + message.SerializeToString()


def _add(
    message: host_api_pb2.TranscriptItem,
    parts: Sequence[types_pb2.ContentPart],
    artifacts: Sequence[types_pb2.ArtifactRef],
) -> None:
    """Add what there is beside the text."""
    if any(not part.HasField("text") for part in parts):
        message.parts.extend(parts)
    message.artifacts.extend(artifacts)


def _bare(record: TranscriptItem) -> host_api_pb2.TranscriptItem:
    message = host_api_pb2.TranscriptItem(
        transcript_id=record.transcript_id,
        event_id=record.event_id,
        run_id=record.run_id or "",
        runner_id=record.runner_id or "",
        role=_ROLES.get(record.role, types_pb2.CHAT_ROLE_UNSPECIFIED),
        kind=_KINDS.get(record.kind, host_api_pb2.TRANSCRIPT_KIND_UNSPECIFIED),
        text=record.text,
        incomplete=record.incomplete,
    )
    message.created_at.FromDatetime(record.created_at)
    return message


def _text_of(parts: Sequence[types_pb2.ContentPart]) -> str | None:
    """Return the text of parts; None where there is no part of text."""
    texts = [part.text for part in parts if part.HasField("text")]
    return "".join(texts) if texts else None
