"""The transcript of a run's conversation: what was said before its event."""

from __future__ import annotations

from runmesh.v1 import host_api_pb2

from host_service.authorization.snapshot import Snapshot
from host_service.authorization.tokens import RunAccess
from host_service.capabilities.transcript_pages import (
    EncodedPage,
    Reader,
    Span,
    TranscriptPages,
    end_of_page,
    issue_token,
    read_token,
)
from host_service.errors import FieldFault, InvalidArgument, NotFound, Unauthorized
from host_service.pages import PageTokens
from host_service.runs.conversation import Conversation
from host_service.runs.cursors import Cursors, ForeignCursor, MalformedCursor


class History:
    """Pages through the transcript, and searches it.

    What a run reads by default ends with the item before its own event, whatever was said since.
    Responses are encoded: a page is made of stored bytes.

    Args:
        transcript: Reads and encodes pages.
        pages: Makes page tokens.
    """

    def __init__(self, *, transcript: TranscriptPages, pages: PageTokens) -> None:
        self._transcript = transcript
        self._pages = pages

    async def page(self, access: RunAccess, request: host_api_pb2.PageHistoryRequest) -> bytes:
        """Return a page of the transcript, as PageHistoryResponse.

        Raises:
            Unauthorized: Another conversation, which the run was not granted.
            NotFound: A cursor of another conversation.
            InvalidArgument: A text that is no cursor, or a page token of another query.
        """
        own = own_conversation(access.snapshot)
        conversation = _asked_for(own, request)
        is_own = conversation == own
        if not is_own and not access.snapshot.wider_history:
            raise Unauthorized(
                "this run was not granted history beyond its conversation",
                facts={"run_id": access.snapshot.run_id},
            )
        cursors = Cursors.of(conversation.key)
        newest_first = request.direction != host_api_pb2.PAGE_DIRECTION_OLDEST_FIRST
        span = Span(
            at_or_before=_at_or_before(access, request, cursors, is_own=is_own),
            after=_position(cursors, "after", request.after),
            newest_first=newest_first,
            size=self._pages.size(request.page_size),
        ).going_on(read_token(self._pages, request, conversation))
        page = await self._transcript.read(
            conversation,
            span,
            Reader(
                with_artifacts=request.include_artifacts,
                run=access.snapshot,
                sees_artifacts=is_own,
            ),
        )
        return self._response(request, page, conversation)

    async def search(self, access: RunAccess, request: host_api_pb2.SearchHistoryRequest) -> bytes:
        """Return a page of what a query finds, newest first, as SearchHistoryResponse.

        Raises:
            InvalidArgument: A page token of another query.
        """
        conversation = own_conversation(access.snapshot)
        latest = _latest(access, Cursors.of(conversation.key))
        last = read_token(self._pages, request, conversation)
        page = await self._transcript.search(
            conversation,
            request.query,
            before=latest + 1 if last is None else min(last, latest + 1),
            size=self._pages.search_size(request.page_size),
            reader=Reader(with_artifacts=False, run=access.snapshot),
        )
        return self._response(request, page, conversation)

    def _response(
        self,
        request: host_api_pb2.PageHistoryRequest | host_api_pb2.SearchHistoryRequest,
        page: EncodedPage,
        conversation: Conversation,
    ) -> bytes:
        return page.items + end_of_page(issue_token(self._pages, request, page, conversation))


def own_conversation(snapshot: Snapshot) -> Conversation:
    """Return the conversation and thread of a run's event; of none, one without an id."""
    identity = snapshot.identity
    return Conversation(
        workspace=identity.workspace,
        bot=identity.bot,
        conversation_id=identity.conversation_id,
        thread_id=identity.thread_id,
    )


def _asked_for(own: Conversation, request: host_api_pb2.PageHistoryRequest) -> Conversation:
    """Return the conversation and thread that a request means, of the run's workspace and bot."""
    conversation_id = request.conversation_id or own.conversation_id
    if request.HasField("thread_id"):
        thread_id = request.thread_id
    else:
        thread_id = own.thread_id if conversation_id == own.conversation_id else ""
    return Conversation(
        workspace=own.workspace,
        bot=own.bot,
        conversation_id=conversation_id,
        thread_id=thread_id,
    )


def _at_or_before(
    access: RunAccess,
    request: host_api_pb2.PageHistoryRequest,
    cursors: Cursors,
    *,
    is_own: bool,
) -> int | None:
    if request.at_or_before:
        return _position(cursors, "at_or_before", request.at_or_before)
    # The run's event stands in no other conversation: there, nothing is too new.
    return _latest(access, cursors) if is_own else None


def _latest(access: RunAccess, cursors: Cursors) -> int:
    """Return the newest position before the run's event; 0 where nothing was said before it."""
    cursor = access.told.latest_cursor()
    return cursors.decode(cursor) if cursor else 0


def _position(cursors: Cursors, field: str, cursor: str) -> int | None:
    if not cursor:
        return None
    try:
        return cursors.decode(cursor)
    except ForeignCursor as error:
        raise NotFound("cursor", cursor) from error
    except MalformedCursor as error:
        fault = FieldFault(field, "a cursor of the transcript", "another text")
        raise InvalidArgument([fault]) from error
