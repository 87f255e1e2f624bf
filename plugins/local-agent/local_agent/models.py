"""The models of a run: the primary one, and fallbacks that are tried before anything was said."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from runmesh.v1.context_pb2 import MODEL_KIND_CHAT, ModelResource
from runmesh.v1.host_api_pb2 import ModelDelta
from runmesh.v1.types_pb2 import ChatMessage, ToolDefinition

from runner_sdk import HostCallError, RunContext
from runner_sdk.errors import DeadlineExceeded, Unauthenticated
from runner_sdk.host import ModelAnswer

from .failures import Failed, model_failed, no_model
from .settings import Settings


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked."""

    messages: Sequence[ChatMessage]
    tools: Sequence[ToolDefinition] = ()
    tool_choice: str = ""


MakeQuestion = Callable[[ModelResource], Awaitable[Question]]
"""Makes the question for one model: what it can see and how much it can read differ."""


class Models:
    """Asks the run's models, one after the other, until one answers.

    Attributes:
        missing: Models that the configuration chooses and the run was not given.
        failed: The models that failed so far, with the reason.
    """

    def __init__(self, ctx: RunContext, settings: Settings) -> None:
        given = {
            model.model_id: model for model in ctx.resources.models if model.kind == MODEL_KIND_CHAT
        }
        self._calls = ctx.host.models
        self._extra_args = settings.extra_args
        self._left = [given[each] for each in settings.model_ids if each in given]
        self._answer: ModelAnswer | None = None
        self.missing = [each for each in settings.model_ids if each not in given]
        self.failed: list[Failed] = []
        if not self._left:
            raise no_model(self.missing)

    @property
    def current(self) -> ModelResource:
        """The model that answers, or that is asked next."""
        return self._left[0]

    @property
    def answer(self) -> ModelAnswer:
        """The last answer, whole."""
        if self._answer is None:
            raise RuntimeError("no model has answered yet")
        return self._answer

    async def ask(self, make_question: MakeQuestion) -> AsyncGenerator[ModelDelta, None]:
        """Yields an answer's pieces as they come; `answer` has the whole afterwards.

        A model that fails before its first piece is left for the next one, for the rest of the run.

        Raises:
            RunFailure: None of them answered, or one broke off in the middle.
        """
        while True:
            model, began = self.current, False
            question = await make_question(model)
            try:
                async with self._calls.stream(
                    model.model_id,
                    question.messages,
                    tools=question.tools,
                    tool_choice=question.tool_choice,
                    extra_args=self._extra_args or None,
                ) as stream:
                    async for piece in stream:
                        began = began or _says_something(piece)
                        yield piece
                self._answer = stream.answer
                return
            except HostCallError as error:
                self._give_up(model, error, began=began)

    def _give_up(self, model: ModelResource, error: HostCallError, *, began: bool) -> None:
        """Goes on to the next model, or ends the run where that cannot help."""
        self.failed.append((model.model_id, error))
        run_is_over = isinstance(error, Unauthenticated | DeadlineExceeded)
        if began or run_is_over or len(self._left) == 1:
            raise model_failed(self.failed, said_something=began) from error
        self._left.pop(0)


def _says_something(piece: ModelDelta) -> bool:
    return bool(piece.text or piece.reasoning_text or piece.tool_calls)
