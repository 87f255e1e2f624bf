"""The events of a run's conversation, as they were logged."""

from __future__ import annotations

from runmesh.v1 import event_pb2, host_api_pb2

from host_service.authorization.snapshot import EventIdentity, Snapshot
from host_service.authorization.tokens import RunAccess
from host_service.errors import NotFound
from host_service.limits import Limits
from host_service.pages import PageTokens, foreign_token
from host_service.runs.artifact_refs import brings_artifacts, hand_to_run
from host_service.runs.event import source_name
from stores.event_log import EventLog
from stores.records import EventRecord, Page

# More than positions have, and less than 64 bits.
_POSITION_DIGITS = 19


class Events:
    """Reads events of the conversation and thread of a run's own event.

    An event that belongs to none is seen by its own run alone.

    Args:
        log: Where events are.
        pages: Makes page tokens.
        limits: How much a page has.
    """

    def __init__(self, *, log: EventLog, pages: PageTokens, limits: Limits) -> None:
        self._log = log
        self._pages = pages
        self._limits = limits

    async def get(
        self, access: RunAccess, request: host_api_pb2.GetEventRequest
    ) -> host_api_pb2.GetEventResponse:
        """Give one event.

        Raises:
            NotFound: There is none, or it belongs elsewhere.
        """
        own = access.snapshot.identity
        source = source_name(request.source) if request.source else own.source
        record = await self._log.get(own.workspace, own.bot, source, request.event_id)
        if record is None or not _belongs(record, own):
            raise NotFound("event", request.event_id)
        return host_api_pb2.GetEventResponse(event=_envelope(record, access.snapshot))

    async def page(
        self, access: RunAccess, request: host_api_pb2.PageEventsRequest
    ) -> host_api_pb2.PageEventsResponse:
        """Give a page of events.

        Raises:
            InvalidArgument: A page token of another query.
        """
        own = access.snapshot.identity
        newest_first = request.direction != host_api_pb2.PAGE_DIRECTION_OLDEST_FIRST
        size = self._pages.size(request.page_size)
        last = self._position(request, own)
        if own.conversation_key:
            page = await self._log.page(
                own.conversation_key,
                types=request.types,
                before=last if newest_first else None,
                after=None if newest_first else last,
                limit=size,
                newest_first=newest_first,
                most_bytes=self._limits.page_bytes,
            )
        else:
            page = await self._only(own, request)
        cursor = None if page.next_cursor is None else str(page.next_cursor)
        return host_api_pb2.PageEventsResponse(
            events=[_envelope(record, access.snapshot) for record in page.items],
            next_page_token=self._pages.issue(request, cursor, within=own.conversation_key),
        )

    async def _only(
        self, own: EventIdentity, request: host_api_pb2.PageEventsRequest
    ) -> Page[EventRecord, int]:
        """Return the run's own event, which belongs to no conversation."""
        record = await self._log.get(own.workspace, own.bot, own.source, own.event_id)
        is_asked_for = record is not None and (not request.types or record.type in request.types)
        return Page((record,) if record is not None and is_asked_for else (), None)

    def _position(self, request: host_api_pb2.PageEventsRequest, own: EventIdentity) -> int | None:
        cursor = self._pages.read(request, within=own.conversation_key)
        if cursor is None:
            return None
        if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < _POSITION_DIGITS):
            raise foreign_token("a token made by hand")
        return int(cursor)


def _belongs(record: EventRecord, own: EventIdentity) -> bool:
    if own.conversation_key:
        return record.conversation_key == own.conversation_key
    return (record.source, record.event_id) == (own.source, own.event_id)


def _envelope(record: EventRecord, snapshot: Snapshot) -> event_pb2.EventEnvelope:
    envelope = event_pb2.EventEnvelope.FromString(record.envelope)
    if brings_artifacts(envelope):
        hand_to_run(envelope, snapshot)
    return envelope
