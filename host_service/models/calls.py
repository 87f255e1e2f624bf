# ruff: noqa: ARG002
"""Calls to the models of the catalogue."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence

from host_service.catalogue.shelf import Shelf
from host_service.errors import NotImplementedHere
from host_service.limits import Limits
from host_service.models.answers import Answer, Delta, Question, Ranking, Vectors
from host_service.models.endpoints import Endpoints
from host_service.telemetry import Telemetry


class ModelCalls:
    """Asks models, for runs and for the host itself.

    Cancelling a call, or leaving a stream, closes the provider's connection at once.

    Args:
        shelf: Returns what the catalogue holds now.
        endpoints: Finds where models are served.
        limits: How much is too much.
        telemetry: Makes spans.
    """

    def __init__(
        self,
        *,
        shelf: Callable[[], Shelf],
        endpoints: Endpoints,
        limits: Limits,
        telemetry: Telemetry,
    ) -> None:
        self._shelf = shelf
        self._endpoints = endpoints
        self._limits = limits
        self._telemetry = telemetry

    async def ask(self, model_id: str, question: Question) -> Answer:
        """Ask a chat model, and return its whole answer.

        Raises:
            NotFound: There is no such model, it is disabled, or it is no chat model.
            HostError: The question will not do, or the provider failed; see `failures`.
        """
        raise NotImplementedHere("ModelCalls.ask")

    def stream(self, model_id: str, question: Question) -> AsyncGenerator[Delta | Answer, None]:
        """Ask a chat model; yield the pieces of its answer, and last the whole of it.

        Raises:
            HostError: As `ask`; what came before is valid.
        """
        raise NotImplementedHere("ModelCalls.stream")

    async def embed(self, model_id: str, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, in order. Any number of texts; none is sent for none.

        Raises:
            HostError: As `ask`.
        """
        return [list(each) for each in (await self.vectors(model_id, texts)).values]

    async def vectors(self, model_id: str, texts: Sequence[str]) -> Vectors:
        """Return a vector for each text, and what they cost.

        Raises:
            HostError: As `ask`.
        """
        raise NotImplementedHere("ModelCalls.vectors")

    async def rank(
        self, model_id: str, query: str, documents: Sequence[str], *, top_k: int | None = None
    ) -> Ranking:
        """Order documents by their relevance to a query.

        Raises:
            HostError: As `ask`.
        """
        raise NotImplementedHere("ModelCalls.rank")

    async def close(self) -> None:
        """Close every connection to providers."""
