"""Events that bring files: inline bytes become artifacts, refs are held against the store.

What flows where::

    envelope ── checked, completed (`take_in`) ── brings no files ──────────────────────> Event
       └── known already? it has the refs it was logged with ───────────────────────────> Event
       └── refs: the caller's to give? they become the conversation's ──────────────────> Event
       └── inline bytes: stored under an id that follows from the event and their place ─> Event

An event that is delivered twice makes the same artifacts. Those of an event that is then refused
are given back where nobody else can have them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from datetime import datetime
from hashlib import sha256

from runmesh.v1 import event_pb2, types_pb2

from host_service.authorization.callers import Caller
from host_service.errors import (
    AlreadyExists,
    FieldFault,
    HostError,
    InvalidArgument,
    NoBinding,
    Unavailable,
)
from host_service.identity import join_key
from host_service.limits import Limits
from host_service.runs.artifact_refs import (
    artifact_ref,
    brings_artifacts,
    refs_of_input,
    type_of,
)
from host_service.runs.event import Event, already_exists, source_name, take_in
from stores import errors
from stores.artifacts import Artifacts
from stores.errors import InvalidRecord
from stores.event_log import EventLog
from stores.records import ArtifactHeader, ArtifactRecord

_INPUT = "event.input"
_USABLE = "an artifact that the caller may give to this conversation"
# Digits of an id that follows from what it is of: as many as nobody ever sees collide.
_ID_DIGITS = 40


class EventIntake:
    """Takes events in for the gateway.

    Args:
        artifacts: Where files are kept.
        events: Tells which events are known.
        limits: How large an event may be.
        clock: Tells when one came in.
    """

    def __init__(
        self,
        *,
        artifacts: Artifacts,
        events: EventLog,
        limits: Limits,
        clock: Callable[[], datetime],
    ) -> None:
        self._artifacts = artifacts
        self._events = events
        self._limits = limits
        self._clock = clock

    async def take_in(self, envelope: event_pb2.EventEnvelope, caller: Caller) -> Event:
        """Complete an event whose fields were checked; its inline bytes become artifacts.

        Args:
            envelope: The caller's to give away: it is changed in place.
            caller: Who sends it; its workspace and bot are within the caller's reach.

        Raises:
            PayloadTooLarge: It is larger than an event may be.
            InvalidArgument: A thread without a conversation; an artifact that is not the caller's
                to give; the name or media type of inline bytes breaks a rule.
            AlreadyExists: It brings files, and is known with other content.
        """
        event = take_in(envelope, received_at=self._clock(), limits=self._limits)
        if not brings_artifacts(envelope):
            return event
        if not await self._take_known(event):
            await self._check_refs(event, caller)
            event = replace(event, stored=await self._store_whole(event))
        await self._check_raw(event, caller)
        return event

    async def give_back(self, event: Event, refusal: HostError) -> None:
        """Remove the artifacts that were made for an event that was refused.

        Left alone are those that another delivery of the same event may have by now; and those of
        an event that was logged without a run, or of which it is not known whether it was stored.
        """
        if isinstance(refusal, NoBinding | Unavailable):
            return
        # The digest is part of their ids: no delivery with this content was ever accepted.
        if isinstance(refusal, AlreadyExists) or not event.has_own_id:
            await self._delete(event.stored)

    async def _take_known(self, event: Event) -> bool:
        """Give an event that was logged before the input that it was logged with."""
        if not event.has_own_id:
            return False
        envelope = event.envelope
        logged = await self._events.get(
            envelope.workspace_id, envelope.bot_id, source_name(envelope.source), envelope.event_id
        )
        if logged is None:
            return False
        if logged.digest != event.digest:
            raise already_exists(event)
        envelope.input.CopyFrom(event_pb2.EventEnvelope.FromString(logged.envelope).input)
        return True

    async def _check_refs(self, event: Event, caller: Caller) -> None:
        """Replace what refs say by what is stored, and let the artifacts belong to the event."""
        refs = list(refs_of_input(event.envelope.input, _INPUT))
        found = await self._usable(caller, ((path, ref.artifact_id) for path, ref in refs))
        faults = [
            FieldFault(f"{path}.sha256", "the digest of the artifact", "another digest")
            for path, ref in refs
            if ref.sha256 != found[ref.artifact_id].sha256
        ]
        if faults:
            raise InvalidArgument(faults)
        await self._adopt(event, {path: ref.artifact_id for path, ref in refs})
        for _, ref in refs:
            ref.CopyFrom(artifact_ref(found[ref.artifact_id]))

    async def _check_raw(self, event: Event, caller: Caller) -> None:
        raw = event.envelope.raw_ref
        if not raw.artifact_id:
            return
        path = "event.raw_ref"
        found = await self._usable(caller, [(path, raw.artifact_id)])
        record = found[raw.artifact_id]
        if raw.sha256 != record.sha256:
            rule = "the digest of the artifact"
            raise InvalidArgument([FieldFault(f"{path}.sha256", rule, "another digest")])
        await self._adopt(event, {path: raw.artifact_id})
        raw.size_bytes = record.size_bytes

    async def _usable(
        self, caller: Caller, named: Iterable[tuple[str, str]]
    ) -> dict[str, ArtifactRecord]:
        found: dict[str, ArtifactRecord] = {}
        faults = []
        for path, artifact_id in named:
            record = found.get(artifact_id) or await self._artifacts.get(artifact_id)
            if record is None or not caller.reaches(workspace=record.workspace, bot=record.bot):
                faults.append(_not_usable(path))
            else:
                found[artifact_id] = record
        if faults:
            raise InvalidArgument(faults)
        return found

    async def _adopt(self, event: Event, named: dict[str, str]) -> None:
        """Give the artifacts to the event's conversation; what is of another one stays there."""
        if not named:
            return
        refused = await self._artifacts.adopt(
            tuple(dict.fromkeys(named.values())),
            workspace=event.envelope.workspace_id,
            bot=event.envelope.bot_id,
            conversation_key=event.conversation_key,
        )
        if refused:
            raise InvalidArgument(
                [_not_usable(path) for path, artifact_id in named.items() if artifact_id in refused]
            )

    async def _store_whole(self, event: Event) -> tuple[str, ...]:
        """Store the inline bytes of an event, all or none, also where its caller goes away."""
        storing = asyncio.create_task(self._store_inline(event))
        try:
            return await asyncio.shield(storing)
        except asyncio.CancelledError:
            stored = await storing
            if not event.has_own_id:
                # It will never come again.
                await self._delete(stored)
            raise

    async def _store_inline(self, event: Event) -> tuple[str, ...]:
        """Put refs in the place of inline bytes; return the ids of what was stored for it."""
        stored: list[str] = []
        try:
            for index, part in enumerate(event.envelope.input.parts):
                if part.HasField("inline"):
                    record, is_new = await self._store_part(event, index, part.inline)
                    stored += [record.artifact_id] if is_new else []
                    part.artifact.CopyFrom(artifact_ref(record))
        except InvalidArgument:
            # Nothing with this content will ever be accepted.
            await self._delete(stored)
            raise
        return tuple(stored)

    async def _store_part(
        self, event: Event, index: int, inline: types_pb2.InlineContent
    ) -> tuple[ArtifactRecord, bool]:
        """Return the artifact of one part's bytes, and whether it was made just now."""
        header = _header_of(event, index, inline)
        try:
            return await self._artifacts.write(header, _whole(inline.data)), True
        except InvalidRecord as error:
            field = f"{_INPUT}.parts[{index}].inline.{error.field}"
            raise InvalidArgument([FieldFault(field, error.rule, "another text")]) from error
        except errors.AlreadyExists as error:
            # The same delivery, a moment ago or right now.
            found = await self._artifacts.get(header.artifact_id)
            if found is None:
                raise Unavailable("an artifact of the event is gone: send it again") from error
            return found, False

    async def _delete(self, artifact_ids: Iterable[str]) -> None:
        for artifact_id in artifact_ids:
            await self._artifacts.delete(artifact_id)


def _header_of(event: Event, index: int, inline: types_pb2.InlineContent) -> ArtifactHeader:
    envelope = event.envelope
    return ArtifactHeader(
        artifact_id=_inline_id(event, index),
        workspace=envelope.workspace_id,
        bot=envelope.bot_id,
        conversation_key=event.conversation_key,
        type=type_of(inline.mime_type),
        created_at=event.received_at,
        mime_type=inline.mime_type,
        name=inline.name,
    )


def _inline_id(event: Event, index: int) -> str:
    """Return the id of a part's bytes: the same for the same event with the same content."""
    envelope = event.envelope
    key = join_key(
        envelope.workspace_id,
        envelope.bot_id,
        source_name(envelope.source),
        envelope.event_id,
        event.digest.hex(),
        str(index),
    )
    return f"event-{sha256(key.encode()).hexdigest()[:_ID_DIGITS]}"


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _not_usable(path: str) -> FieldFault:
    return FieldFault(f"{path}.artifact_id", _USABLE, "another id")
