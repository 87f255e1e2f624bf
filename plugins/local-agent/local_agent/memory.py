"""What a model is told beside the turn: the conversation before it, as much as fits."""

from collections.abc import Sequence

from runmesh.v1 import context_pb2
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1.context_pb2 import ModelResource
from runmesh.v1.types_pb2 import ChatMessage, TokenUsage, ToolDefinition

from runner_sdk import RunContext, RunFailure

from .budget import Budget
from .fitting import fit_turn, newest_that_fit
from .history import Passage, Telling, item_tokens, passages_of
from .settings import Settings
from .tokens import messages_tokens, tools_tokens

PROMPT_TOO_LARGE = "local-agent.prompt_too_large"

_GROUP = "group"


class Memory:
    """The conversation before a turn, for one model.

    Args:
        ctx: The run.
        model: The model that is asked.
        settings: The agent's configuration.
    """

    def __init__(self, ctx: RunContext, *, model: ModelResource, settings: Settings) -> None:
        self._ctx = ctx
        self._model = model
        self._budget = Budget.of(model, settings)
        conversation = ctx.conversation
        self._telling = Telling(
            message_tokens=self._budget.message,
            sees_images=context_pb2.MODEL_ABILITY_VISION in model.abilities,
            names_speakers=conversation is not None and conversation.launcher_type == _GROUP,
        )
        self._passages: list[Passage] | None = None

    async def prompt(
        self,
        *,
        system: Sequence[ChatMessage],
        turn: Sequence[ChatMessage],
        tools: Sequence[ToolDefinition],
    ) -> list[ChatMessage]:
        """Returns the messages of a prompt that fits: instructions, history, the turn.

        Args:
            system: The instructions.
            turn: What was asked, with what was found for it, and the rounds of tool calls so far.
            tools: The tools that the model is offered.

        Raises:
            RunFailure: The instructions and the tools leave no room for a question.
        """
        if self._passages is None:
            self._passages = await self._pull()
        left = self._budget.prompt - messages_tokens(system) - tools_tokens(tools)
        fitted = fit_turn(turn, left)
        turn_tokens = messages_tokens(fitted)
        if turn_tokens > left:
            raise self._too_large(system, tools)
        sizes = [passage.tokens for passage in self._passages]
        first = newest_that_fit(sizes, min(left - turn_tokens, self._budget.history))
        history = [each for passage in self._passages[first:] for each in passage.messages]
        return [*system, *history, *fitted]

    async def after(self, *, usage: TokenUsage | None) -> None:
        """Keeps what the next turn needs. To be called before the terminal result.

        Args:
            usage: What the provider reported of the last prompt; None: nothing.
        """

    async def _pull(self) -> list[Passage]:
        """Returns the newest of the conversation, as much as the budget holds."""
        if not self._ctx.proto.context.has_history_before:
            return []
        items: list[api.TranscriptItem] = []
        left = self._budget.history
        async for item in self._ctx.host.history.iterate(include_artifacts=True):
            left -= min(item_tokens(item), self._budget.message)
            if left < 0:
                break
            items.append(item)
        items.reverse()
        return passages_of(items, self._telling, {})

    def _too_large(
        self, system: Sequence[ChatMessage], tools: Sequence[ToolDefinition]
    ) -> RunFailure:
        return RunFailure(
            PROMPT_TOO_LARGE,
            f"the instructions (field `prompt`, about {messages_tokens(system)} tokens) and the "
            f"tools (field `tools`, about {tools_tokens(tools)}) leave no room for a question: the "
            f"model {self._model.model_id} holds {self._budget.window} tokens, "
            f"{self._budget.reply} of them for its answer",
        )
