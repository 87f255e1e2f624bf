"""Calls to the models of the catalogue.

ask, stream ─> body ─┐                                            ┌─> chat ─> assembly ─> pieces
vectors ─> batches ──┼─> calling (span, channel, turn, attempts) ─┼─> vectors
rank ────────────────┘            └── failures ─> HostError       └─> ranking
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

from host_service.catalogue.model import CHAT, Model
from host_service.catalogue.shelf import Shelf
from host_service.errors import FieldFault, InvalidArgument, NotFound
from host_service.identity import new_id
from host_service.limits import Limits
from host_service.models import chat
from host_service.models.answers import Answer, Delta, Question, Ranking, Usage, Vectors
from host_service.models.assembly import AnswerAssembly
from host_service.models.body import STREAM_OPTIONS, chat_body, plain_body
from host_service.models.call import Call, calling
from host_service.models.channels import Channels
from host_service.models.endpoints import Endpoints
from host_service.models.failures import Kind, ProviderFailure, refuses
from host_service.models.ranking import TEXTS, read_ranking
from host_service.models.usage import added, reported_usage
from host_service.models.vectors import batches, read_vectors, require_one_length
from host_service.telemetry import Telemetry

EMBEDDING = "embedding"
RERANK = "rerank"


class ModelCalls:
    """Asks models, for runs and for the host itself.

    Cancelling a call, or leaving a stream, closes the provider's connection at once. A model is
    named by its id, or given as a run has it: then what the catalogue says of it now goes first.
    `patience_seconds` says how long the one who asks will be there, so that nobody waits for
    another attempt in vain; None: no matter how long.

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
        self._limits = limits
        self._telemetry = telemetry
        self._channels = Channels(endpoints=endpoints, limits=limits)
        self._seen: Shelf | None = None
        # How many texts at once a provider was found to take, where that is fewer.
        self._batch_texts: dict[str, int] = {}
        self._without_usage: set[str] = set()

    async def ask(
        self, model: str | Model, question: Question, *, patience_seconds: float | None = None
    ) -> Answer:
        """Ask a chat model, and return its whole answer.

        Raises:
            NotFound: There is no such model, or it is disabled.
            HostError: The question will not do, or the provider failed; see `failures`.
        """
        pieces = self._answering(model, question, patience_seconds, streamed=False)
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Answer):
                    return piece
        raise AssertionError("an answer ended without its end")

    def stream(
        self, model: str | Model, question: Question, *, patience_seconds: float | None = None
    ) -> AsyncGenerator[Delta | Answer, None]:
        """Ask a chat model; yield the pieces of its answer, and last the whole of it.

        Raises:
            HostError: As `ask`; what came before is valid.
        """
        return self._answering(model, question, patience_seconds, streamed=True)

    async def embed(self, model: str | Model, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, in order. Any number of texts; nothing is sent for none.

        Raises:
            HostError: As `ask`.
        """
        return [list(each) for each in (await self.vectors(model, texts)).values]

    async def vectors(
        self, model: str | Model, texts: Sequence[str], *, patience_seconds: float | None = None
    ) -> Vectors:
        """Return a vector for each text, and what they cost.

        Raises:
            HostError: As `ask`.
        """
        found = await self._found(model, EMBEDDING)
        values: list[Sequence[float]] = []
        costs: list[Usage | None] = []
        if texts:
            async with self._calling("embeddings", found, patience_seconds) as call:
                most = self._batch_texts.get(found.id, self._limits.embedding_batch_texts)
                for batch in batches(texts, most):
                    await self._embed(found, call, batch, values, costs)
                require_one_length(values)
                usage = added(found.id, costs)
                _note_cost(call, usage)
                return Vectors(values=values, usage=usage)
        return Vectors(values=values)

    async def rank(
        self,
        model: str | Model,
        query: str,
        documents: Sequence[str],
        *,
        top_k: int | None = None,
        patience_seconds: float | None = None,
    ) -> Ranking:
        """Order documents by their relevance to a query.

        Args:
            model: The model.
            query: The query.
            documents: The documents; nothing is sent for none.
            top_k: How many to return; None: all.
            patience_seconds: As for every call.

        Raises:
            HostError: As `ask`.
        """
        found = await self._found(model, RERANK)
        if not documents:
            return Ranking(places=())
        async with self._calling("rerank", found, patience_seconds) as call:
            own: dict[str, Any] = {"query": query, "documents": list(documents)}
            if top_k is not None:
                own["top_n"] = top_k
            try:
                text = await self._posted(found, call, "/rerank", own)
            except ProviderFailure as failure:
                # Some have `texts` in the place of `documents`.
                if not refuses(failure, TEXTS):
                    raise
                text = await self._posted(
                    found, call, "/rerank", {"query": query, "texts": list(documents)}
                )
            places, report = read_ranking(text, len(documents))
            usage = reported_usage(found.id, report)
            _note_cost(call, usage)
            return Ranking(places=places[:top_k], usage=usage)

    async def close(self) -> None:
        """Close every connection to providers."""
        await self._channels.close()

    async def _answering(
        self,
        model: str | Model,
        question: Question,
        patience_seconds: float | None,
        *,
        streamed: bool,
    ) -> AsyncGenerator[Delta | Answer, None]:
        found = await self._found(model, CHAT)
        async with self._calling("chat", found, patience_seconds) as call:
            while True:
                body = chat_body(
                    found,
                    call.channel.model_name,
                    question,
                    stream=streamed,
                    with_usage=found.id not in self._without_usage,
                    most_bytes=self._limits.model_request_bytes,
                )
                assembly = self._assembly(found)
                await call.begin_attempt()
                try:
                    async with aclosing(
                        self._attempt(call, body, assembly, streamed=streamed)
                    ) as deltas:
                        async for delta in deltas:
                            yield delta
                    break
                except ProviderFailure as failure:
                    if assembly.has_begun:
                        failure.has_begun = True
                        raise
                    if self._knows_no_usage(found, failure):
                        continue
                    await call.wait_to_try_again(failure)
            answer = assembly.answer()
            call.span.answer(
                response_model=answer.response_model, finish_reason=answer.finish_reason
            )
            _note_cost(call, answer.usage)
        yield answer

    def _knows_no_usage(self, model: Model, failure: ProviderFailure) -> bool:
        """Note a provider that refuses to be asked what a stream costs; say so once."""
        if not refuses(failure, STREAM_OPTIONS) or model.id in self._without_usage:
            return False
        self._without_usage.add(model.id)
        return True

    async def _attempt(
        self, call: Call, body: bytes, assembly: AnswerAssembly, *, streamed: bool
    ) -> AsyncGenerator[Delta, None]:
        client = call.channel.client
        async with client.post(chat.PATH, body) as response:
            pieces = chat.read_pieces(
                client,
                response,
                assembly,
                streamed=streamed,
                most_bytes=self._limits.model_response_bytes,
            )
            async with aclosing(pieces):
                async for delta in pieces:
                    yield delta

    async def _embed(
        self,
        model: Model,
        call: Call,
        texts: Sequence[str],
        values: list[Sequence[float]],
        costs: list[Usage | None],
    ) -> None:
        """Append the vectors of one batch; one that the provider refuses goes in halves."""
        try:
            text = await self._posted(model, call, "/embeddings", {"input": list(texts)})
        except ProviderFailure as failure:
            kinds = (Kind.REFUSED, Kind.CONTEXT_TOO_LONG)
            if failure.detail.kind not in kinds or len(texts) == 1:
                raise
            half = len(texts) // 2
            await self._embed(model, call, texts[:half], values, costs)
            await self._embed(model, call, texts[half:], values, costs)
            self._batch_texts.setdefault(model.id, len(texts) - half)
            return
        vectors, report = await read_vectors(text, len(texts))
        values += vectors
        costs.append(reported_usage(model.id, report))

    async def _posted(self, model: Model, call: Call, path: str, own: Mapping[str, Any]) -> str:
        """Return the whole body that is answered to a request."""
        body = plain_body(
            model, call.channel.model_name, own, most_bytes=self._limits.model_request_bytes
        )
        client = call.channel.client

        async def send() -> str:
            async with client.post(path, body) as response:
                return await client.whole(response)

        return await call.tried(send)

    def _assembly(self, model: Model) -> AnswerAssembly:
        return AnswerAssembly(
            model_id=model.id,
            most_bytes=self._limits.model_answer_bytes,
            new_id=lambda: f"call_{new_id()}",
        )

    def _calling(
        self, operation: str, model: Model, patience_seconds: float | None
    ) -> AbstractAsyncContextManager[Call]:
        return calling(
            operation,
            model,
            channels=self._channels,
            telemetry=self._telemetry,
            limits=self._limits,
            patience_seconds=patience_seconds,
        )

    async def _found(self, model: str | Model, kind: str) -> Model:
        shelf = self._shelf()
        if shelf is not self._seen:
            self._seen = shelf
            await self._channels.drop(lambda model_id: model_id not in shelf.models)
        model_id = model.id if isinstance(model, Model) else model
        found = shelf.model(model_id) or (model if isinstance(model, Model) else None)
        if found is None:
            raise NotFound("model", model_id)
        if found.kind != kind:
            rule = f"a model of the kind {kind}"
            raise InvalidArgument([FieldFault("model_id", rule, f"one of the kind {found.kind}")])
        return found


def _note_cost(call: Call, usage: Usage | None) -> None:
    if usage is not None:
        call.span.use(usage.input_tokens, usage.output_tokens)
