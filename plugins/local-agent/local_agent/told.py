"""What a model is told in one turn, made anew for each question."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from runmesh.v1.context_pb2 import MODEL_ABILITY_TOOL_CALLING, ModelResource
from runmesh.v1.types_pb2 import ChatMessage, TokenUsage, ToolDefinition

from runner_sdk import RunContext

from .budget import Budget
from .heard import Heard, told_of_event
from .memory import Memory
from .models import Amendment, Question
from .settings import Settings
from .tokens import messages_tokens, tools_tokens

_SMALLEST_TURN = 512


@dataclass(slots=True, kw_only=True)
class TurnPrompt:
    """The instructions, what was heard, what was found for it, and the rounds of calls so far.

    Attributes:
        ctx: The run.
        settings: The agent's configuration.
        system: The instructions.
        heard: What was said; None: an event without words.
        passages: What was found for it, in words for the model.
        tools: The tools that the model is offered.
        rounds: What came after: answers with calls, their results, and what was said meanwhile.
        must_answer: Whether no tool may be called any more.
        unseen: Names of the pictures that the model which was asked last is not shown.
    """

    ctx: RunContext
    settings: Settings
    system: Sequence[ChatMessage]
    heard: Heard | None
    passages: str
    tools: Sequence[ToolDefinition]
    rounds: list[ChatMessage | Heard] = field(default_factory=list)
    must_answer: bool = False
    unseen: list[str] = field(default_factory=list)
    _asked_tokens: dict[str, int] = field(default_factory=dict)
    _memory: Memory | None = None
    _memories: dict[tuple[str, frozenset[Amendment]], tuple[ModelResource, Memory]] = field(
        default_factory=dict
    )

    async def question(self, model: ModelResource, amended: frozenset[Amendment]) -> Question:
        """Returns the question for one model."""
        tools = self.tools if calls_tools(model) else ()
        if (model.model_id, amended) not in self._memories:
            taken_for = self._amended(model, tools, amended)
            memory = Memory(self.ctx, model=taken_for, settings=self.settings)
            self._memories[model.model_id, amended] = taken_for, memory
        taken_for, self._memory = self._memories[model.model_id, amended]
        self.unseen = []
        messages = await self._memory.prompt(
            system=self.system, turn=self._turn(taken_for), tools=tools
        )
        if Amendment.SHORTER not in amended:
            self._asked_tokens[model.model_id] = messages_tokens(messages) + tools_tokens(tools)
        return Question(messages, tools, "none" if self.must_answer else "")

    async def before_tools(self, called: ChatMessage) -> None:
        """Lets it be kept which tools are about to be called.

        Args:
            called: The answer that wants them called.
        """
        if self._memory is not None:
            said = [each for each in self.rounds if isinstance(each, ChatMessage)]
            await self._memory.before_tools([*said, called])

    async def after(self, usage: TokenUsage | None) -> Sequence[TokenUsage]:
        """Lets what the next turn needs be kept; returns what that cost, call by call.

        Args:
            usage: What the last question cost; None: unknown.
        """
        if self._memory is None:
            return ()
        await self._memory.after(usage=usage)
        return self._memory.spent

    def _turn(self, model: ModelResource) -> list[ChatMessage]:
        first = self.heard or told_of_event(self.ctx)
        turn = [self._told(first, model, before=self.passages)]
        return turn + [self._told(each, model) for each in self.rounds]

    def _told(
        self, said: ChatMessage | Heard, model: ModelResource, before: str = ""
    ) -> ChatMessage:
        if isinstance(said, ChatMessage):
            return said
        told = said.told_to(model, before=before)
        self.unseen += told.unseen
        return told.message

    def _amended(
        self,
        model: ModelResource,
        tools: Sequence[ToolDefinition],
        amended: frozenset[Amendment],
    ) -> ModelResource:
        """Returns a model that sees less, or holds less, than it says of itself."""
        taken_for = ModelResource()
        taken_for.CopyFrom(model)
        if Amendment.WITHOUT_PICTURES in amended:
            del taken_for.abilities[:]
        if Amendment.SHORTER in amended:
            taken_for.context_window_tokens = self._smaller_window(model, tools)
        return taken_for

    def _smaller_window(self, model: ModelResource, tools: Sequence[ToolDefinition]) -> int:
        """Returns the window for half of what was too long, whatever the model says it holds.

        It is never so small that the instructions and the tools leave no room for the question.
        """
        asked = self._asked_tokens.get(model.model_id, 0)
        least = 2 * (messages_tokens(self.system) + tools_tokens(tools)) + _SMALLEST_TURN
        return min(Budget.of(model, self.settings).window // 2, max(least, asked * 2 // 3))


def calls_tools(model: ModelResource) -> bool:
    """Returns whether a model may be offered tools; one that says nothing of itself may."""
    return not model.abilities or MODEL_ABILITY_TOOL_CALLING in model.abilities
