"""What a replay works on: everything as it was when its original began, and nothing to stay.

State and storage are overlays, whose writes the replay alone sees. Its artifacts expire, and belong
to no conversation. The transcript and the events end where they ended for the original.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from host_service.limits import Limits
from host_service.runs.replay_actions import ReplayedActions
from stores import Stores
from stores.artifacts import MOST_BYTES, Artifacts
from stores.event_log import EventLog
from stores.overlays import StateOverlay, StorageOverlay
from stores.records import (
    ArtifactHeader,
    ArtifactRecord,
    Collected,
    EventRecord,
    LogEntry,
    Page,
    PlacedContent,
    RunRecord,
    TranscriptItem,
)
from stores.transcript import Transcript

_KEPT_FOR = timedelta(hours=1)
_ITEMS_AT_ONCE = 100


def replay_stores(
    stores: Stores,
    original: RunRecord,
    *,
    side_effects: bool,
    limits: Limits,
    clock: Callable[[], datetime],
) -> Stores:
    """Return the stores that a replay works on.

    Args:
        stores: What there is.
        original: The run that is replayed.
        side_effects: Whether what the replay writes stays.
        limits: How large values may be.
        clock: Tells the time.
    """
    as_it_was = replace(
        stores,
        transcript=TranscriptAsItWas(stores.transcript, original),
        events=EventsAsTheyWere(stores.events, original),
    )
    if side_effects:
        return as_it_was
    return replace(
        as_it_was,
        state=StateOverlay(stores.state, clock=clock, most_bytes=limits.state_value_bytes),
        storage=StorageOverlay(stores.storage, clock=clock, most_bytes=limits.storage_value_bytes),
        artifacts=TemporaryArtifacts(stores.artifacts, clock=clock),
        actions=ReplayedActions(stores.events),
    )


class TranscriptAsItWas:
    """Implements `stores.transcript.Transcript` over another, up to where a run began.

    Args:
        stored: The transcript as it is.
        run: The run.
    """

    def __init__(self, stored: Transcript, run: RunRecord) -> None:
        self._stored = stored
        self._began_at = run.created_at
        self._last = {run.conversation_key: run.latest_cursor_position or 0}

    async def _last_of(self, conversation_key: str) -> int:
        """Return the newest position that there was; 0 for none."""
        last = self._last.get(conversation_key)
        if last is None:
            last = self._last[conversation_key] = await self._find_last(conversation_key)
        return last

    async def _find_last(self, conversation_key: str) -> int:
        before: int | None = None
        while True:
            page = await self._stored.page(conversation_key, before=before, limit=_ITEMS_AT_ONCE)
            for item in page.items:
                if item.created_at < self._began_at:
                    return item.position
            before = page.next_cursor
            if before is None:
                return 0

    async def page(
        self,
        conversation_key: str,
        *,
        before: int | None = None,
        after: int | None = None,
        at_or_before: int | None = None,
        limit: int = 50,
        newest_first: bool = True,
    ) -> Page[TranscriptItem, int]:
        """Return a page of a conversation; see the protocol."""
        last = await self._last_of(conversation_key)
        return await self._stored.page(
            conversation_key,
            before=before,
            after=after,
            at_or_before=last if at_or_before is None else min(at_or_before, last),
            limit=limit,
            newest_first=newest_first,
        )

    async def contents(
        self,
        conversation_key: str,
        *,
        before: int | None = None,
        after: int | None = None,
        at_or_before: int | None = None,
        limit: int = 50,
        newest_first: bool = True,
        most_bytes: int | None = None,
    ) -> Page[PlacedContent, int]:
        """Return what `page` does, but contents alone; see the protocol."""
        last = await self._last_of(conversation_key)
        return await self._stored.contents(
            conversation_key,
            before=before,
            after=after,
            at_or_before=last if at_or_before is None else min(at_or_before, last),
            limit=limit,
            newest_first=newest_first,
            most_bytes=most_bytes,
        )

    async def latest_position(self, conversation_key: str) -> int | None:
        """Return the newest position of a conversation; `None` while it has no items."""
        return await self._last_of(conversation_key) or None

    async def search(
        self, conversation_key: str, query: str, *, before: int | None = None, limit: int = 10
    ) -> Page[TranscriptItem, int]:
        """Return a page of what a query finds; see the protocol."""
        behind = await self._last_of(conversation_key) + 1
        return await self._stored.search(
            conversation_key,
            query,
            before=behind if before is None else min(before, behind),
            limit=limit,
        )

    async def search_workspace(
        self, workspace: str, query: str, *, before: int | None = None, limit: int = 10
    ) -> Page[TranscriptItem, int]:
        """Return a page of what a query finds in a workspace; see the protocol."""
        page = await self._stored.search_workspace(workspace, query, before=before, limit=limit)
        items = tuple(item for item in page.items if item.created_at < self._began_at)
        return Page(items, page.next_cursor)


class EventsAsTheyWere:
    """Implements `stores.event_log.EventLog` over another, up to where a run began.

    Args:
        stored: The log as it is.
        run: The run.
    """

    def __init__(self, stored: EventLog, run: RunRecord) -> None:
        self._stored = stored
        self._began_at = run.created_at

    def append(self, event: EventRecord) -> Future[bool]:
        """Log an event that starts no run; see the protocol."""
        return self._stored.append(event)

    def append_entries(self, entries: Sequence[LogEntry]) -> Future[None]:
        """Log facts that belong to no `RunFacts`; see the protocol."""
        return self._stored.append_entries(entries)

    async def get(self, workspace: str, bot: str, source: str, event_id: str) -> EventRecord | None:
        """Return the event with this key, or `None`."""
        event = await self._stored.get(workspace, bot, source, event_id)
        return event if event is not None and self._was_there(event) else None

    async def get_for_run(self, run_id: str) -> EventRecord | None:
        """Return the event that started this run; `None` if there is no such run or event."""
        event = await self._stored.get_for_run(run_id)
        return event if event is not None and self._was_there(event) else None

    async def page(
        self,
        conversation_key: str,
        *,
        types: Collection[str] = (),
        after: int | None = None,
        before: int | None = None,
        limit: int = 50,
        newest_first: bool = True,
        most_bytes: int | None = None,
    ) -> Page[EventRecord, int]:
        """Return a page of the events of a conversation; see the protocol."""
        while True:
            page = await self._stored.page(
                conversation_key,
                types=types,
                after=after,
                before=before,
                limit=limit,
                newest_first=newest_first,
                most_bytes=most_bytes,
            )
            items = tuple(event for event in page.items if self._was_there(event))
            is_beyond = not newest_first and len(items) < len(page.items)
            if items or page.next_cursor is None or is_beyond:
                return Page(items, None if is_beyond else page.next_cursor)
            # All of these came later.
            before = page.next_cursor if newest_first else before
            after = after if newest_first else page.next_cursor

    async def entries(
        self, run_id: str, *, after_position: int = 0, limit: int = 1_000
    ) -> Sequence[LogEntry]:
        """Return entries of a run, oldest first; see the protocol."""
        return await self._stored.entries(run_id, after_position=after_position, limit=limit)

    def _was_there(self, event: EventRecord) -> bool:
        return event.received_at <= self._began_at


class TemporaryArtifacts:
    """Implements `stores.artifacts.Artifacts` over others: what is written is soon gone.

    It belongs to its run alone: to nobody who looks through the conversation.

    Args:
        stored: Where artifacts are.
        clock: Tells the time.
    """

    def __init__(self, stored: Artifacts, *, clock: Callable[[], datetime]) -> None:
        self._stored = stored
        self._clock = clock

    async def write(
        self,
        header: ArtifactHeader,
        chunks: AsyncIterable[bytes],
        *,
        size_bytes: int | None = None,
        sha256: bytes | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> ArtifactRecord:
        """Store an artifact; see the protocol."""
        gone_at = self._clock() + _KEPT_FOR
        expires_at = gone_at if header.expires_at is None else min(header.expires_at, gone_at)
        return await self._stored.write(
            replace(header, conversation_key="", expires_at=expires_at),
            chunks,
            size_bytes=size_bytes,
            sha256=sha256,
            most_bytes=most_bytes,
        )

    async def get(self, artifact_id: str) -> ArtifactRecord | None:
        """Return what is known of an artifact, or `None`."""
        return await self._stored.get(artifact_id)

    async def read(self, artifact_id: str, *, offset: int, length: int) -> bytes | None:
        """Return a range of an artifact's bytes; see the protocol."""
        return await self._stored.read(artifact_id, offset=offset, length=length)

    async def open(
        self, artifact_id: str, *, offset: int = 0, length: int | None = None
    ) -> tuple[ArtifactRecord, AsyncIterator[bytes]] | None:
        """Return an artifact and an iterator over its bytes; see the protocol."""
        return await self._stored.open(artifact_id, offset=offset, length=length)

    async def list_of_run(
        self, run_id: str, *, after: str | None = None, limit: int = 100
    ) -> Page[ArtifactRecord, str]:
        """Return artifacts that a run created; see the protocol."""
        return await self._stored.list_of_run(run_id, after=after, limit=limit)

    async def list_of_conversation(
        self, conversation_key: str, *, after: str | None = None, limit: int = 100
    ) -> Page[ArtifactRecord, str]:
        """Return artifacts of a conversation; see the protocol."""
        return await self._stored.list_of_conversation(conversation_key, after=after, limit=limit)

    async def list_of_workspace(
        self, workspace: str, *, after: str | None = None, limit: int = 100
    ) -> Page[ArtifactRecord, str]:
        """Return artifacts of a workspace; see the protocol."""
        return await self._stored.list_of_workspace(workspace, after=after, limit=limit)

    async def adopt(
        self,
        artifact_ids: Sequence[str],
        *,
        workspace: str,  # noqa: ARG002 - none is given away
        bot: str,  # noqa: ARG002 - none is given away
        conversation_key: str,  # noqa: ARG002 - none is given away
    ) -> Sequence[str]:
        """Give no artifact to any conversation."""
        return artifact_ids

    async def delete(self, artifact_id: str) -> bool:
        """Delete an artifact; False without such an artifact."""
        return await self._stored.delete(artifact_id)

    async def delete_created_before(self, workspace: str, time: datetime, *, limit: int) -> int:
        """Delete the oldest artifacts of a workspace; see the protocol."""
        return await self._stored.delete_created_before(workspace, time, limit=limit)

    async def collect_orphans(
        self, *, grace_seconds: float = 3_600.0, batch: int = 200
    ) -> Collected:
        """Delete what nobody refers to; see the protocol."""
        return await self._stored.collect_orphans(grace_seconds=grace_seconds, batch=batch)
