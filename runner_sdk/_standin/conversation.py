"""What was said and what happened in the stand-in host's one conversation."""

import uuid
from collections.abc import Iterable, Iterator

from runmesh.v1 import event_pb2, types_pb2
from runmesh.v1 import host_api_pb2 as api

from runner_sdk._standin.active_run import ActiveRun
from runner_sdk._standin.artifacts import StandInArtifacts
from runner_sdk._standin.pages import page_of
from runner_sdk._standin.refusals import not_found, refused

CONVERSATION = "conversation"

_ITEM_TEXT_BYTES = 256 * 1024


class StandInHistory:
    """The transcript: what tests seed, and what runs add to it."""

    def __init__(self, artifacts: StandInArtifacts) -> None:
        self._artifacts = artifacts
        self.items: list[api.TranscriptItem] = []

    @property
    def latest_cursor(self) -> str:
        """The newest item's place; empty where there is none."""
        return self.items[-1].cursor if self.items else ""

    def add(self, item: api.TranscriptItem) -> None:
        """Adds an item, and fills in what it does not say."""
        added = api.TranscriptItem(
            transcript_id=str(uuid.uuid4()),
            event_id=str(uuid.uuid4()),
            conversation_id=CONVERSATION,
            kind=api.TRANSCRIPT_KIND_MESSAGE,
        )
        added.created_at.GetCurrentTime()
        added.MergeFrom(item)
        added.cursor = f"c{len(self.items):08d}"
        self.items.append(added)

    def add_message(
        self,
        run: ActiveRun,
        message: types_pb2.ChatMessage,
        artifacts: Iterable[types_pb2.ArtifactRef] = (),
    ) -> None:
        """Adds what somebody said in a run."""
        text = "".join(part.text for part in message.parts)
        item = api.TranscriptItem(
            event_id=run.context.event.event_id,
            role=message.role,
            text=text,
            parts=message.parts,
            artifacts=[*message.artifacts, *artifacts],
            metadata=message.metadata,
        )
        if message.role == types_pb2.CHAT_ROLE_ASSISTANT:
            item.run_id, item.runner_id = run.context.run_id, run.manifest.id
        self.add(item)

    def page(self, run: ActiveRun, request: api.PageHistoryRequest) -> api.PageHistoryResponse:
        """Reads a page; without a bound it begins before the run's own event."""
        self._require_own(run, request)
        newest = self._position(request.at_or_before or run.context.context.latest_cursor)
        oldest = self._position(request.after) + 1 if request.after else 0
        descending = request.direction != api.PAGE_DIRECTION_OLDEST_FIRST
        entries = [
            (item.cursor, self._shown(item, include_artifacts=request.include_artifacts))
            for item in self.items[oldest : newest + 1]
        ]
        found, token = page_of(
            request, reversed(entries) if descending else entries, descending=descending
        )
        return api.PageHistoryResponse(items=found, next_page_token=token)

    def search(
        self, run: ActiveRun, request: api.SearchHistoryRequest
    ) -> api.SearchHistoryResponse:
        """Finds items in which all words occur, newest first."""
        words = request.query.casefold().split()
        newest = self._position(run.context.context.latest_cursor)
        entries = (
            (item.cursor, self._shown(item, include_artifacts=False))
            for item in reversed(self.items[: newest + 1])
            if all(word in item.text.casefold() for word in words)
        )
        found, token = page_of(request, entries, descending=True, default_size=10)
        return api.SearchHistoryResponse(items=found, next_page_token=token)

    def _position(self, cursor: str) -> int:
        if not cursor:
            return -1
        for position, item in enumerate(self.items):
            if item.cursor == cursor:
                return position
        raise not_found("place in the transcript", cursor)

    def _require_own(self, run: ActiveRun, request: api.PageHistoryRequest) -> None:
        own = run.context.conversation
        if request.conversation_id not in {"", own.conversation_id} or (
            request.HasField("thread_id") and request.thread_id != own.thread_id
        ):
            raise refused(
                "UNAUTHORIZED",
                "the agent's policy does not grant history of other conversations",
                resource=request.conversation_id,
            )

    def _shown(self, item: api.TranscriptItem, *, include_artifacts: bool) -> api.TranscriptItem:
        shown = api.TranscriptItem()
        shown.CopyFrom(item)
        if not include_artifacts:
            shown.ClearField("artifacts")
        whole = item.text.encode()
        if len(whole) > _ITEM_TEXT_BYTES:
            shown.text = whole[:_ITEM_TEXT_BYTES].decode(errors="ignore")
            shown.truncated = True
            shown.ClearField("parts")
            ref = self._artifacts.add(
                whole, api.ArtifactHeader(type="file", mime_type="text/plain; charset=utf-8")
            )
            shown.artifacts.append(ref)
        return shown


class StandInEvents:
    """The events: what tests seed, and those that runs answer."""

    def __init__(self) -> None:
        self.envelopes: list[event_pb2.EventEnvelope] = []

    def add(self, envelope: event_pb2.EventEnvelope) -> None:
        """Adds an event, and fills in what it does not say."""
        added = event_pb2.EventEnvelope(
            event_id=str(uuid.uuid4()),
            source=event_pb2.EVENT_SOURCE_API,
            conversation_id=CONVERSATION,
        )
        added.MergeFrom(envelope)
        self.envelopes.append(added)

    def get(self, run: ActiveRun, request: api.GetEventRequest) -> api.GetEventResponse:
        """Reads an event of the run's conversation."""
        source = request.source or run.context.event.source
        for envelope in self._of(run):
            if (envelope.event_id, envelope.source) == (request.event_id, source):
                return api.GetEventResponse(event=envelope)
        raise not_found("event", request.event_id)

    def page(self, run: ActiveRun, request: api.PageEventsRequest) -> api.PageEventsResponse:
        """Reads a page of events."""
        descending = request.direction != api.PAGE_DIRECTION_OLDEST_FIRST
        entries = [
            (f"{number:08d}", envelope)
            for number, envelope in enumerate(self._of(run))
            if not request.types or envelope.type in request.types
        ]
        found, token = page_of(
            request, reversed(entries) if descending else entries, descending=descending
        )
        return api.PageEventsResponse(events=found, next_page_token=token)

    def _of(self, run: ActiveRun) -> Iterator[event_pb2.EventEnvelope]:
        conversation_id = run.context.conversation.conversation_id
        return (
            envelope for envelope in self.envelopes if envelope.conversation_id == conversation_id
        )
