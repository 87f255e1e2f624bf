"""The transcript for callers: conversations within their reach, artifacts included."""

from __future__ import annotations

from runmesh.v1 import gateway_pb2, host_api_pb2

from host_service.authorization.callers import Caller
from host_service.capabilities.transcript_pages import (
    Reader,
    Span,
    TranscriptPages,
    end_of_page,
    issue_token,
    read_token,
)
from host_service.errors import NotFound
from host_service.pages import PageTokens
from host_service.runs.conversation import Conversation


class CallerTranscript:
    """Pages through conversations. Responses are encoded: a page is made of stored bytes.

    Args:
        transcript: Reads and encodes pages.
        pages: Makes page tokens.
    """

    def __init__(self, *, transcript: TranscriptPages, pages: PageTokens) -> None:
        self._transcript = transcript
        self._pages = pages

    async def page(self, caller: Caller, request: gateway_pb2.PageConversationRequest) -> bytes:
        """Return a page of a conversation, as PageConversationResponse.

        Raises:
            NotFound: Nothing was ever said there, or it is beyond the caller's reach.
            InvalidArgument: A page token of another query.
        """
        conversation = Conversation(
            workspace=request.workspace_id,
            bot=request.bot_id,
            conversation_id=request.conversation_id,
            thread_id=request.thread_id,
        )
        if not caller.reaches(workspace=conversation.workspace, bot=conversation.bot):
            raise NotFound("conversation", request.conversation_id)
        span = Span(
            at_or_before=None,
            after=None,
            newest_first=request.direction != host_api_pb2.PAGE_DIRECTION_OLDEST_FIRST,
            size=self._pages.size(request.page_size),
        ).going_on(read_token(self._pages, request, conversation))
        page = await self._transcript.read(conversation, span, Reader(with_artifacts=True))
        # Where everything was removed there is a conversation still, and nothing in it.
        if not page.items and not await self._transcript.exists(conversation):
            raise NotFound("conversation", request.conversation_id)
        return page.items + end_of_page(issue_token(self._pages, request, page, conversation))
