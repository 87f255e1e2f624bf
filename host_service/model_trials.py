"""Models tried by hand: one real call of a model's kind, the way in which runs call it."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import asdict

from google.protobuf.duration_pb2 import Duration
from runmesh.admin.v1 import models_pb2
from runmesh.v1 import types_pb2

from host_service.catalogue.model import CHAT, Model
from host_service.errors import Unavailable
from host_service.models.answers import Answer, Question, Usage
from host_service.models.calls import ModelCalls

_QUESTION = "Say hello in one short sentence."
_TEXT = "An agent host turns events into runs of agents."
_DOCUMENTS = (
    "Pears and apples grow on trees.",
    "A host of agents gives each event to one agent, whose run answers it.",
    "It rained all of yesterday.",
)
_TOOL_QUESTION = "Call the tool weather_lookup for the weather in Paris."
_TOOL = {
    "type": "function",
    "function": {
        "name": "weather_lookup",
        "description": "Looks up the weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city."}},
            "required": ["city"],
        },
    },
}


class ModelTrials:
    """Tries models.

    Args:
        calls: Calls them.
    """

    def __init__(self, *, calls: ModelCalls) -> None:
        self._calls = calls

    async def attempt(self, model: Model, text: str) -> models_pb2.TestModelResponse:
        """Call a model, and return how it answered.

        Args:
            model: Which.
            text: What it is asked; empty: a few words.

        Raises:
            HostError: What calls of models fail with.
        """
        began = time.monotonic()
        if model.kind == CHAT:
            tried = await self._chat(model, text or _QUESTION)
        elif model.kind == "embedding":
            tried = await self._embedding(model, text or _TEXT)
        else:
            tried = await self._rerank(model, text or _TEXT)
        tried.total.CopyFrom(_duration(time.monotonic() - began))
        return tried

    async def _chat(self, model: Model, text: str) -> models_pb2.TestModelResponse:
        began, first, answer = time.monotonic(), None, None
        async with aclosing(self._calls.stream(model.id, Question.of_text(text))) as pieces:
            async for piece in pieces:
                if isinstance(piece, Answer):
                    answer = piece
                elif first is None:
                    first = time.monotonic() - began
        if answer is None:
            raise Unavailable(f"the model {model.id!r} ended without an answer")
        chat = models_pb2.ChatTried(text=answer.text, finish_reason=answer.finish_reason)
        if first is not None:
            chat.first_token.CopyFrom(_duration(first))
        if "tool_calling" in model.abilities:
            chat.called_tool = await self._calls_tool(model)
        return models_pb2.TestModelResponse(
            chat=chat, usage=_usage(answer.usage), response_model=answer.response_model
        )

    async def _calls_tool(self, model: Model) -> bool:
        message = {"role": "user", "content": _TOOL_QUESTION}
        answer = await self._calls.ask(model.id, Question(messages=(message,), tools=(_TOOL,)))
        return any(call.name == "weather_lookup" for call in answer.tool_calls)

    async def _embedding(self, model: Model, text: str) -> models_pb2.TestModelResponse:
        vectors = await self._calls.vectors(model.id, [text])
        return models_pb2.TestModelResponse(
            embedding=models_pb2.EmbeddingTried(dimension=len(vectors.values[0])),
            usage=_usage(vectors.usage),
        )

    async def _rerank(self, model: Model, text: str) -> models_pb2.TestModelResponse:
        ranking = await self._calls.rank(model.id, text, _DOCUMENTS)
        documents = [
            models_pb2.RankedDocument(text=_DOCUMENTS[place], score=score)
            for place, score in ranking.places
        ]
        return models_pb2.TestModelResponse(
            rerank=models_pb2.RerankTried(documents=documents), usage=_usage(ranking.usage)
        )


def _usage(usage: Usage | None) -> types_pb2.TokenUsage | None:
    return None if usage is None else types_pb2.TokenUsage(**asdict(usage))


def _duration(seconds: float) -> Duration:
    told = Duration()
    told.FromNanoseconds(int(seconds * 1e9))
    return told
