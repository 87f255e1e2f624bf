"""The transcript of the run's conversation."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from runmesh.v1 import host_api_pb2 as api

from runner_sdk._host.calls import HostCalls
from runner_sdk._host.pages import PAGE_SIZE, each
from runner_sdk._host.requests import PageOrder, make, page_direction

_MOST_FOUND = 50


@dataclass(frozen=True, slots=True)
class History:
    """The transcript of the run's conversation: `ctx.host.history`.

    The event's own message is not in it: it begins with what came before. Needs the permissions
    `history: [page]` and `[search]`.
    """

    calls: HostCalls

    async def page(
        self,
        *,
        at_or_before: str = "",
        after: str = "",
        direction: PageOrder = "newest_first",
        page_size: int = PAGE_SIZE,
        include_artifacts: bool = False,
        conversation_id: str = "",
        thread_id: str | None = None,
        page_token: str = "",
    ) -> api.PageHistoryResponse:
        """Reads one page of the transcript.

        Args:
            at_or_before: Nothing newer than this cursor. Empty: the newest before the run's event.
            after: Only what is newer than this cursor.
            direction: The order of the items.
            page_size: How many items, 1 to 100. A page ends earlier at 2 MiB.
            include_artifacts: Include the refs of artifacts.
            conversation_id: Another conversation, where the agent's policy grants wider history.
            thread_id: Another thread, likewise. None: the run's own.
            page_token: `next_page_token` of the page before; the rest must be the same.

        Raises:
            Unauthorized: Another conversation, without a policy that grants it.
            NotFound: A cursor of another conversation.
        """
        request = make(
            api.PageHistoryRequest,
            at_or_before=at_or_before,
            after=after,
            direction=page_direction(direction),
            page_size=page_size,
            include_artifacts=include_artifacts,
            conversation_id=conversation_id,
            thread_id=thread_id,
            page_token=page_token,
        )
        response: api.PageHistoryResponse = await self.calls.call("PageHistory", request)
        return response

    def iterate(
        self,
        *,
        at_or_before: str = "",
        after: str = "",
        direction: PageOrder = "newest_first",
        page_size: int = PAGE_SIZE,
        include_artifacts: bool = False,
        conversation_id: str = "",
        thread_id: str | None = None,
    ) -> AsyncIterator[api.TranscriptItem]:
        """Yields the transcript item by item, fetching the next page when one is used up.

        Args:
            at_or_before: As for `page`, like all of them.
            after: Only what is newer than this cursor.
            direction: The order of the items.
            page_size: How many items are fetched at once.
            include_artifacts: Include the refs of artifacts.
            conversation_id: Another conversation.
            thread_id: Another thread.
        """
        return each(
            lambda page_token: self.page(
                at_or_before=at_or_before,
                after=after,
                direction=direction,
                page_size=page_size,
                include_artifacts=include_artifacts,
                conversation_id=conversation_id,
                thread_id=thread_id,
                page_token=page_token,
            ),
            lambda page: page.items,
        )

    async def search(self, query: str, *, limit: int = 10) -> list[api.TranscriptItem]:
        """Finds the newest items in which all words of the query occur.

        Args:
            query: Words; data, never syntax. 1 to 1024 bytes.
            limit: How many items at most, over as many pages as it takes.
        """
        found: list[api.TranscriptItem] = []
        if limit > 0:
            async for item in self.iterate_search(query, page_size=min(limit, _MOST_FOUND)):
                found.append(item)
                if len(found) == limit:
                    break
        return found

    async def search_page(
        self, query: str, *, page_size: int = 10, page_token: str = ""
    ) -> api.SearchHistoryResponse:
        """Reads one page of what `search` finds.

        Args:
            query: Words that must all occur.
            page_size: How many items, 1 to 50.
            page_token: `next_page_token` of the page before, for the same query.
        """
        request = make(
            api.SearchHistoryRequest, query=query, page_size=page_size, page_token=page_token
        )
        response: api.SearchHistoryResponse = await self.calls.call("SearchHistory", request)
        return response

    def iterate_search(
        self, query: str, *, page_size: int = 10
    ) -> AsyncIterator[api.TranscriptItem]:
        """Yields everything that `search` finds, newest first, page after page."""
        return each(
            lambda page_token: self.search_page(query, page_size=page_size, page_token=page_token),
            lambda page: page.items,
        )
