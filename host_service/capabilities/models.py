"""Models that runs were given."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime
from typing import TypeAlias

from runmesh.v1 import host_api_pb2, types_pb2

from host_service.authorization.tokens import RunAccess
from host_service.capabilities import chat_messages
from host_service.capabilities.chat_messages import ChatMessages
from host_service.catalogue.model import Model
from host_service.errors import NotFound, PayloadTooLarge, Unauthorized
from host_service.limits import Limits
from host_service.models.answers import Answer, Question
from host_service.models.calls import ModelCalls
from stores import artifacts as store

_VISION = "vision"
# What a message has around the numbers of its vectors.
_AROUND_BYTES = 64 * 1024
_FLOAT_BYTES = 4
_AROUND_VECTOR_BYTES = 16

_ChatRequest: TypeAlias = host_api_pb2.InvokeModelRequest | host_api_pb2.StreamModelRequest


class Models:
    """Asks the models of a run.

    A model that the run was not given is `NotFound`, as one that never was. What every method
    raises beside that is a failure of the model's provider, as `host_service.models.failures` has
    it.

    Args:
        calls: Asks models.
        artifacts: Where pictures are.
        limits: How much is too much.
        clock: Tells the time.
    """

    def __init__(
        self,
        *,
        calls: ModelCalls,
        artifacts: store.Artifacts,
        limits: Limits,
        clock: Callable[[], datetime],
    ) -> None:
        self._calls = calls
        self._artifacts = artifacts
        self._limits = limits
        self._clock = clock

    async def invoke(
        self, access: RunAccess, request: host_api_pb2.InvokeModelRequest
    ) -> host_api_pb2.InvokeModelResponse:
        """Ask a model once."""
        model = _find(access, request.model_id)
        question = await self._question(access, model, request)
        answer = await self._calls.ask(model, question, patience_seconds=self._patience(access))
        return host_api_pb2.InvokeModelResponse(
            message=chat_messages.answer_message(answer),
            finish_reason=answer.finish_reason,
            usage=chat_messages.usage_message(answer.usage),
        )

    async def stream(
        self, access: RunAccess, request: host_api_pb2.StreamModelRequest
    ) -> AsyncGenerator[host_api_pb2.StreamModelResponse, None]:
        """Ask a model and yield its answer."""
        model = _find(access, request.model_id)
        question = await self._question(access, model, request)
        pieces = self._calls.stream(model, question, patience_seconds=self._patience(access))
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Answer):
                    yield host_api_pb2.StreamModelResponse(end=_end(piece))
                else:
                    delta = chat_messages.delta_message(piece)
                    yield host_api_pb2.StreamModelResponse(delta=delta)

    async def rerank(
        self, access: RunAccess, request: host_api_pb2.RerankDocumentsRequest
    ) -> host_api_pb2.RerankDocumentsResponse:
        """Order documents."""
        ranking = await self._calls.rank(
            _find(access, request.model_id),
            request.query,
            request.documents,
            top_k=request.top_k if request.HasField("top_k") else None,
            patience_seconds=self._patience(access),
        )
        return host_api_pb2.RerankDocumentsResponse(
            documents=[
                host_api_pb2.RankedDocument(index=index, score=score)
                for index, score in ranking.places
            ],
            usage=chat_messages.usage_message(ranking.usage),
        )

    async def embed(
        self, access: RunAccess, request: host_api_pb2.EmbedTextsRequest
    ) -> host_api_pb2.EmbedTextsResponse:
        """Turn texts into vectors.

        Raises:
            PayloadTooLarge: They do not go into one message; fewer texts do.
        """
        vectors = await self._calls.vectors(
            _find(access, request.model_id),
            request.texts,
            patience_seconds=self._patience(access),
        )
        size = sum(len(each) * _FLOAT_BYTES + _AROUND_VECTOR_BYTES for each in vectors.values)
        limit = self._limits.message_bytes - _AROUND_BYTES
        if size > limit:
            raise PayloadTooLarge("the vectors of these texts", size_bytes=size, limit_bytes=limit)
        return host_api_pb2.EmbedTextsResponse(
            embeddings=[host_api_pb2.Embedding(values=each) for each in vectors.values],
            usage=chat_messages.usage_message(vectors.usage),
        )

    async def _question(self, access: RunAccess, model: Model, request: _ChatRequest) -> Question:
        async def read(ref: types_pb2.ArtifactRef, field: str) -> tuple[bytes, str]:
            return await self._read_image(access, ref, field)

        messages = ChatMessages(sees_images=_VISION in model.abilities, read_artifact=read)
        return Question(
            messages=await messages.write(request.messages),
            tools=chat_messages.tools(request.tools),
            tool_choice=request.tool_choice,
            extra_args_json=request.extra_args_json or "{}",
        )

    async def _read_image(
        self, access: RunAccess, ref: types_pb2.ArtifactRef, field: str
    ) -> tuple[bytes, str]:
        # Bytes reach the run by what the model says of them: that takes the right to read them.
        if not access.snapshot.grants("artifacts", "read"):
            raise Unauthorized(
                "this run was not granted the permission artifacts: read",
                facts={"run_id": access.snapshot.run_id},
            )
        record = await self._artifacts.get(ref.artifact_id)
        if record is None or not access.snapshot.sees(record):
            raise NotFound("artifact", ref.artifact_id)
        most = self._limits.model_image_bytes
        if record.size_bytes > most:
            raise PayloadTooLarge(field, size_bytes=record.size_bytes, limit_bytes=most)
        data = await self._artifacts.read(record.artifact_id, offset=0, length=most)
        if data is None:
            raise NotFound("artifact", ref.artifact_id)
        return data, record.mime_type or ref.mime_type

    def _patience(self, access: RunAccess) -> float | None:
        deadline = access.told.deadline
        return None if deadline is None else (deadline - self._clock()).total_seconds()


def _end(answer: Answer) -> host_api_pb2.ModelEnd:
    return host_api_pb2.ModelEnd(
        finish_reason=answer.finish_reason,
        message=chat_messages.answer_message(answer),
        usage=chat_messages.usage_message(answer.usage),
    )


def _find(access: RunAccess, model_id: str) -> Model:
    if model_id in access.snapshot.models:
        for model in access.snapshot.resources.models:
            if model.id == model_id:
                return model
    raise NotFound("model", model_id)
