"""The run's knowledge bases, and searching them."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runmesh.v1 import host_api_pb2 as api

from runner_sdk._host.calls import HostCalls
from runner_sdk._host.pages import PAGE_SIZE, each
from runner_sdk._host.requests import make, optional_json


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The run's knowledge bases: `ctx.host.knowledge`.

    Needs the capability `knowledge_retrieval` and the permissions `knowledge_bases: [list]` and
    `[retrieve]`.
    """

    calls: HostCalls

    async def retrieve(
        self,
        query: str,
        *,
        knowledge_base_ids: Iterable[str] = (),
        top_k: int = 5,
        filters: Mapping[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> list[api.KnowledgeHit]:
        """Searches knowledge bases and returns passages, best first.

        Args:
            query: What to look for.
            knowledge_base_ids: Which ones. Empty: all that the run was given.
            top_k: How many passages, 1 to 50.
            filters: Conditions on the documents' metadata: name to value.
            timeout_seconds: How long it may take, where that is less than the run may.

        Raises:
            NotFound: The run was not given one of the knowledge bases.
        """
        request = make(
            api.RetrieveKnowledgeRequest,
            knowledge_base_ids=[*knowledge_base_ids],
            query=query,
            top_k=top_k,
            filters_json=optional_json(filters, "filters"),
        )
        response: api.RetrieveKnowledgeResponse = await self.calls.call(
            "RetrieveKnowledge", request, timeout_seconds=timeout_seconds
        )
        return [*response.hits]

    async def list(self) -> list[api.KnowledgeBase]:
        """Returns all knowledge bases of the run, by id."""
        return [base async for base in self.iterate()]

    def iterate(self, *, page_size: int = PAGE_SIZE) -> AsyncIterator[api.KnowledgeBase]:
        """Yields the knowledge bases of the run, fetching the next page when one is used up."""

        async def fetch(page_token: str) -> api.ListKnowledgeBasesResponse:
            request = api.ListKnowledgeBasesRequest(page_size=page_size, page_token=page_token)
            response: api.ListKnowledgeBasesResponse = await self.calls.call(
                "ListKnowledgeBases", request
            )
            return response

        return each(fetch, lambda page: page.knowledge_bases)
