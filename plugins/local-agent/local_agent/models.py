"""The models of a run: the primary one, and fallbacks that are tried before anything was said."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from runmesh.v1.context_pb2 import MODEL_KIND_CHAT, ModelResource
from runmesh.v1.host_api_pb2 import ModelDelta
from runmesh.v1.types_pb2 import ChatMessage, ToolDefinition

from runner_sdk import HostCallError, RunContext
from runner_sdk.errors import (
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    PayloadTooLarge,
    Unauthenticated,
)
from runner_sdk.host import ModelAnswer, ModelStream

from .failures import Failed, model_failed, no_model
from .settings import Settings

# What hosts tell of a provider's failure beside its reason.
_KIND = "model_error"
_TOO_LONG = "context_too_long"
_FILTERED = "content_filter"


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked."""

    messages: Sequence[ChatMessage]
    tools: Sequence[ToolDefinition] = ()
    tool_choice: str = ""

    @property
    def shows_pictures(self) -> bool:
        """Whether there is anything but text."""
        return any(not part.HasField("text") for each in self.messages for part in each.parts)


class Amendment(Enum):
    """What is done about a question that a model refuses, once for each model."""

    SHORTER = "half of what was told stays away"
    WITHOUT_PICTURES = "pictures are named, not shown"


class Asker(Protocol):
    """Makes questions for the models: what they can see and how much they can read differ."""

    async def question(self, model: ModelResource, amended: frozenset[Amendment]) -> Question:
        """Returns the question for one model.

        Args:
            model: The model that is asked.
            amended: What is done about it, since the model has refused it otherwise.
        """


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
        self._amended: dict[str, set[Amendment]] = defaultdict(set)
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

    async def ask(self, asker: Asker) -> AsyncGenerator[ModelDelta, None]:
        """Yields an answer's pieces as they come; `answer` has the whole afterwards.

        A model that fails before its first piece is left for the next one, for the rest of the
        run. One for which the question is too long is asked once more, a shorter one; and one that
        refuses a question with pictures, without them: they may be gone, or be none.

        Raises:
            RunFailure: None of them answered, or one broke off in the middle.
        """
        while True:
            model, began = self.current, False
            amended = self._amended[model.model_id]
            question = await asker.question(model, frozenset(amended))
            try:
                async with self._stream(model, question) as stream:
                    async for piece in stream:
                        began = began or _says_something(piece)
                        yield piece
                self._answer = stream.answer
                return
            except HostCallError as error:
                amendment = None if began else _amendment(question, error)
                if amendment is None or amendment in amended:
                    self._give_up(model, error, began=began)
                else:
                    amended.add(amendment)

    def _stream(self, model: ModelResource, question: Question) -> ModelStream:
        return self._calls.stream(
            model.model_id,
            question.messages,
            tools=question.tools,
            tool_choice=question.tool_choice if question.tools else "",
            extra_args=self._extra_args or None,
        )

    def _give_up(self, model: ModelResource, error: HostCallError, *, began: bool) -> None:
        """Goes on to the next model, or ends the run where that cannot help."""
        self.failed.append((model.model_id, error))
        run_is_over = isinstance(error, Unauthenticated | DeadlineExceeded)
        if began or run_is_over or len(self._left) == 1:
            raise model_failed(self.failed, said_something=began) from error
        self._left.pop(0)


def _amendment(question: Question, error: HostCallError) -> Amendment | None:
    """Returns what may help a model to answer a question that it refused."""
    kind = error.metadata.get(_KIND)
    if kind == _TOO_LONG:
        return Amendment.SHORTER
    refuses = isinstance(error, InvalidArgument | NotFound | PayloadTooLarge)
    if refuses and question.shows_pictures and kind != _FILTERED:
        return Amendment.WITHOUT_PICTURES
    return None


def _says_something(piece: ModelDelta) -> bool:
    return bool(piece.text or piece.reasoning_text or piece.tool_calls)
