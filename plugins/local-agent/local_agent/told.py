"""What a model is told in one turn, made anew for each question."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from runmesh.v1.context_pb2 import MODEL_ABILITY_TOOL_CALLING, ModelResource
from runmesh.v1.types_pb2 import ChatMessage, TokenUsage, ToolDefinition

from runner_sdk import RunContext

from .budget import Budget
from .heard import Heard, told_of_event
from .memory import Memory
from .models import Question
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
        unseen: Names of the pictures that the model which was asked last cannot see.
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
    _memories: dict[tuple[str, bool], Memory] = field(default_factory=dict)

    async def question(self, model: ModelResource, *, shorter: bool) -> Question:
        """Returns the question for one model; a shorter one has half the room."""
        tools = self.tools if calls_tools(model) else ()
        self._memory = self._memory_of(model, tools, shorter=shorter)
        self.unseen = []
        messages = await self._memory.prompt(
            system=self.system, turn=self._turn(model), tools=tools
        )
        if not shorter:
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

    def _memory_of(
        self, model: ModelResource, tools: Sequence[ToolDefinition], *, shorter: bool
    ) -> Memory:
        key = (model.model_id, shorter)
        if key not in self._memories:
            taken_for = self._smaller(model, tools) if shorter else model
            self._memories[key] = Memory(self.ctx, model=taken_for, settings=self.settings)
        return self._memories[key]

    def _smaller(self, model: ModelResource, tools: Sequence[ToolDefinition]) -> ModelResource:
        """Returns a model that holds half of what was too long for it, whatever it says it holds.

        It is never so small that the instructions and the tools leave no room for the question.
        """
        asked = self._asked_tokens.get(model.model_id, 0)
        least = 2 * (messages_tokens(self.system) + tools_tokens(tools)) + _SMALLEST_TURN
        smaller = ModelResource()
        smaller.CopyFrom(model)
        smaller.context_window_tokens = min(
            Budget.of(model, self.settings).window // 2, max(least, asked * 2 // 3)
        )
        return smaller


def calls_tools(model: ModelResource) -> bool:
    """Returns whether a model may be offered tools; one that says nothing of itself may."""
    return not model.abilities or MODEL_ABILITY_TOOL_CALLING in model.abilities
