"""Calls to models: answers whole or streamed, rankings, vectors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import types_pb2

from runner_sdk._host.calls import HostCalls
from runner_sdk._host.requests import make, optional_json
from runner_sdk._host.streams import HostStream
from runner_sdk.errors import RuntimeFailure
from runner_sdk.messages import MessageLike, chat_messages


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model's answer.

    Attributes:
        message: The whole answer, role assistant: append it to the messages to go on.
        finish_reason: `stop`, `length`, `tool_calls`, `content_filter`, or the provider's word.
        usage: What it cost; None: unknown.
    """

    message: types_pb2.ChatMessage
    finish_reason: str
    usage: types_pb2.TokenUsage | None

    @property
    def text(self) -> str:
        """The text of the answer."""
        return "".join(part.text for part in self.message.parts)

    @property
    def tool_calls(self) -> list[types_pb2.ToolCall]:
        """The tools that the model wants called. Their arguments may be empty or malformed."""
        return list(self.message.tool_calls)


class ModelStream(HostStream[api.ModelDelta]):
    """A model's answer as it comes: iterate over it for what is to be appended.

    Each item has `text`, `reasoning_text` and `tool_calls`, pieces of tool calls that `answer` has
    whole.
    """

    _end: api.ModelEnd | None = None

    @property
    def answer(self) -> ModelAnswer:
        """The whole answer, once the stream has ended.

        Raises:
            RuntimeError: The stream has not been read to its end.
        """
        if self._end is None:
            raise RuntimeError("the model's stream has not been read to its end")
        return _answer(self._end)

    def item_of(self, response: api.StreamModelResponse) -> api.ModelDelta | None:
        """Returns a response's piece; keeps the end; leaves out what a later version may add."""
        match response.WhichOneof("item"):
            case "delta":
                return response.delta
            case "end":
                self._end = response.end
        return None

    def on_end(self) -> None:
        """Makes sure that the answer is whole.

        Raises:
            RuntimeFailure: The host ended the stream without the answer's end.
        """
        if self._end is None:
            raise RuntimeFailure(
                method="StreamModel",
                reason="RUNTIME_ERROR",
                message="the stream ended without the answer's end",
            )


@dataclass(frozen=True, slots=True)
class Models:
    """Calls to models: `ctx.host.models`.

    Which models a run may use is in `ctx.resources.models`. Needs the permissions `models:
    [invoke]`, `[stream]`, `[rerank]` and `[embed]`. Asking again costs again: the SDK never does.
    """

    calls: HostCalls

    async def invoke(
        self,
        model_id: str,
        messages: str | Iterable[MessageLike],
        *,
        tools: Iterable[types_pb2.ToolDefinition] = (),
        tool_choice: str = "",
        extra_args: Mapping[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> ModelAnswer:
        """Asks a model and waits for the whole answer.

        Args:
            model_id: Which model.
            messages: The messages, in order; a text is the user's only one.
            tools: Tools that it may call; `ctx.host.tools.definitions()` has the run's.
            tool_choice: `auto`, `none`, `required` or a tool's name. Empty: `auto` with tools.
            extra_args: Further arguments of the provider, such as `{"temperature": 0.2}`.
            timeout_seconds: How long it may take, where that is less than the run may.

        Raises:
            NotFound: The run was not given the model, or may not see an artifact of the messages.
            InvalidArgument: The model cannot take the messages or arguments, or its provider
                refuses them. `metadata["model_error"]` says how: `context_too_long` where fewer
                messages may do, `content_filter` or `refused`.
            RateLimited: The provider wants fewer calls.
            HostUnavailable: The provider is away, silent, or broke off.
            RuntimeFailure: The provider refuses the key, is not paid, does not know the model, or
                sends what is no answer: an operator's matter.
        """
        request = make(
            api.InvokeModelRequest,
            model_id=model_id,
            messages=chat_messages(messages),
            tools=list(tools),
            tool_choice=tool_choice,
            extra_args_json=optional_json(extra_args, "extra_args"),
        )
        response: api.InvokeModelResponse = await self.calls.call(
            "InvokeModel", request, timeout_seconds=timeout_seconds
        )
        return _answer(response)

    def stream(
        self,
        model_id: str,
        messages: str | Iterable[MessageLike],
        *,
        tools: Iterable[types_pb2.ToolDefinition] = (),
        tool_choice: str = "",
        extra_args: Mapping[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> ModelStream:
        """Asks a model and streams the answer.

        Leaving the `async with` block ends the call, and with it the provider's work::

            async with ctx.host.models.stream(model_id, ctx.text) as stream:
                async for piece in stream:
                    yield ctx.delta(piece.text)
            yield ctx.reply(stream.answer.text)

        Args:
            model_id: Which model.
            messages: As for `invoke`, like all of them.
            tools: Tools that it may call.
            tool_choice: Whether it must call one.
            extra_args: Further arguments of the provider.
            timeout_seconds: How long the whole answer may take.

        Raises:
            HostCallError: As for `invoke`. Pieces that came before are valid; where there were
                any, `metadata["answer_begun"]` is `true`.
        """
        request = make(
            api.StreamModelRequest,
            model_id=model_id,
            messages=chat_messages(messages),
            tools=list(tools),
            tool_choice=tool_choice,
            extra_args_json=optional_json(extra_args, "extra_args"),
        )
        return self.calls.stream(
            ModelStream, "StreamModel", request, timeout_seconds=timeout_seconds
        )

    async def rerank(
        self,
        model_id: str,
        query: str,
        documents: Iterable[str],
        *,
        top_k: int | None = None,
        timeout_seconds: float | None = None,
    ) -> list[api.RankedDocument]:
        """Orders documents by their relevance to a query, most relevant first.

        Args:
            model_id: Which model, of the kind rerank.
            query: What they should be relevant to.
            documents: 1 to 1000 texts; the answer's `index` counts them from 0.
            top_k: How many to return. None: all.
            timeout_seconds: How long it may take, where that is less than the run may.
        """
        request = make(
            api.RerankDocumentsRequest,
            model_id=model_id,
            query=query,
            documents=list(documents),
            top_k=top_k,
        )
        response: api.RerankDocumentsResponse = await self.calls.call(
            "RerankDocuments", request, timeout_seconds=timeout_seconds
        )
        return list(response.documents)

    async def embed(
        self, model_id: str, texts: Iterable[str], *, timeout_seconds: float | None = None
    ) -> list[list[float]]:
        """Turns texts into vectors, one for each, in order.

        Args:
            model_id: Which model, of the kind embedding.
            texts: 1 to 1000 texts.
            timeout_seconds: How long it may take, where that is less than the run may.
        """
        request = make(api.EmbedTextsRequest, model_id=model_id, texts=list(texts))
        response: api.EmbedTextsResponse = await self.calls.call(
            "EmbedTexts", request, timeout_seconds=timeout_seconds
        )
        return [list(embedding.values) for embedding in response.embeddings]


def _answer(answer: api.InvokeModelResponse | api.ModelEnd) -> ModelAnswer:
    return ModelAnswer(
        answer.message,
        answer.finish_reason,
        answer.usage if answer.HasField("usage") else None,
    )
