"""What a model is told beside the turn: the conversation before it, as much as fits.

A prompt, and what changes in it from one turn to the next::

    instructions    as the agent has them
    notes           the checkpoint's, until the next one
    history         everything said since: grows at its end
    ------------    up to here, what a provider has cached of the last turn stays good
    quotes          older messages with words of the question
    turn            the question, what was found for it, rounds of tool calls

When history has grown too long, `after` makes a checkpoint of its older half: that happens once in
many turns, when the answer has been shown; the run ends after it.
"""

import asyncio
import hashlib
from collections.abc import Sequence

from runmesh.v1 import context_pb2
from runmesh.v1.context_pb2 import ModelResource
from runmesh.v1.types_pb2 import ChatMessage, TokenUsage, ToolDefinition

from runner_sdk import RunContext, RunFailure

from .budget import Budget
from .calibration import Calibration
from .checkpoint import KEY, Checkpoint
from .exchanges import Exchanges
from .fitting import fit_turn, newest_that_fit
from .history import Passage, Telling
from .pulled import Pulled, pull, pull_rest
from .recall import recall
from .remembered import Remembered
from .settings import Settings
from .summary import Summarizer
from .tokens import is_image, messages_tokens, text_tokens_up_to, texts_of, tools_tokens

PROMPT_TOO_LARGE = "local-agent.prompt_too_large"

_GROUP = "group"
# A checkpoint is made before the history is full: the next turn has to fit as well.
_FULL = 0.9
# What is kept as it was said. The less it is, the longer the next checkpoint can wait.
_KEPT = 0.4
_MOST_QUOTED = 800
# Characters of a turn that are weighed in a few milliseconds.
_LONG_TURN = 32 * 1024


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
        self._settings = settings
        self._budget = Budget.of(model, settings)
        conversation = ctx.conversation
        self._telling = Telling(
            message_tokens=self._budget.message,
            sees_images=context_pb2.MODEL_ABILITY_VISION in model.abilities,
            names_speakers=conversation is not None and conversation.launcher_type == _GROUP,
        )
        self._calibration = Calibration(ctx, model.model_id)
        self._exchanges = Exchanges(ctx)
        self._checkpoint = Remembered(ctx, "conversation", KEY)
        self._summarizer = Summarizer(ctx, model=model, settings=settings)
        self._pulled: Pulled | None = None
        self._quotes: list[ChatMessage] = []
        self._turn: Sequence[ChatMessage] = ()
        self._asked: list[ChatMessage] = []
        self._asked_tokens = 0

    @property
    def spent(self) -> Sequence[TokenUsage]:
        """What summaries cost, so far as it is known; each to be added to the run's usage."""
        return self._summarizer.spent

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
        if self._pulled is None:
            self._pulled = await self._load()
        fixed = messages_tokens(system) + tools_tokens(tools)
        left = self._budget.prompt - fixed
        # Half is the turn's in any case; more of it where the history leaves room.
        fitted = await _fitted(turn, left - min(self._wanted(self._pulled), max(0, left) // 2))
        left -= messages_tokens(fitted)
        if left < 0:
            raise self._too_large(system, tools)
        history = self._history(self._pulled, left)
        self._turn = turn
        self._asked = [*system, *history, *fitted]
        self._asked_tokens = fixed + messages_tokens(history) + messages_tokens(fitted)
        return list(self._asked)

    async def before_tools(self, turn: Sequence[ChatMessage]) -> None:
        """Keeps which tools are about to be called: a run that ends meanwhile leaves a trace.

        Args:
            turn: The turn so far; its last message has the calls.
        """
        await self._exchanges.keep(turn)

    async def after(self, *, usage: TokenUsage | None) -> None:
        """Keeps what the next turn needs. To be called before the terminal result.

        Args:
            usage: What the provider reported of the last prompt; None: nothing.
        """
        if self._pulled is None:
            return
        shows_images = any(is_image(part) for each in self._asked for part in each.parts)
        if usage is not None and usage.HasField("input_tokens") and not shows_images:
            await self._calibration.learn(estimated=self._asked_tokens, reported=usage.input_tokens)
        await self._exchanges.keep(self._turn)
        said = (
            usage.output_tokens if usage is not None and usage.HasField("output_tokens") else None
        )
        await self._compact(self._pulled, said)

    async def _load(self) -> Pulled:
        await self._calibration.load()
        await self._exchanges.load()
        self._budget = Budget.of(self._model, self._settings, ratio=self._calibration.ratio)
        pulled = await pull(
            self._ctx,
            checkpoint=Checkpoint.read(await self._checkpoint.read()),
            telling=self._telling,
            exchanges=self._exchanges.told(),
            tokens=self._budget.history,
        )
        if pulled.hides:
            most = min(_MOST_QUOTED, self._budget.prompt // 16)
            quotes = await recall(self._ctx, shown=pulled.item_ids, tokens=most)
            self._quotes = [quotes] if quotes is not None else []
        return pulled

    def _wanted(self, pulled: Pulled) -> int:
        """Returns how many tokens of history there are to be told."""
        said = sum(passage.tokens for passage in pulled.passages)
        return said + messages_tokens([*_notes(pulled), *self._quotes])

    def _history(self, pulled: Pulled, tokens: int) -> list[ChatMessage]:
        """Returns the notes, what was said since, and the quotes: what fits of them, in turn."""
        notes = _notes(pulled)
        left = min(tokens, self._budget.history) - messages_tokens(notes)
        if left < 0:
            return []
        sizes = [passage.tokens for passage in pulled.passages]
        first = newest_that_fit(sizes, left)
        if first or pulled.rest:
            first = _steady_start(pulled.passages, first, newest_that_fit(sizes, left // 2))
        said = [each for passage in pulled.passages[first:] for each in passage.messages]
        spare = tokens - messages_tokens(notes) - messages_tokens(said)
        return [*notes, *said, *(self._quotes if messages_tokens(self._quotes) <= spare else [])]

    async def _compact(self, pulled: Pulled, said: int | None) -> None:
        """Makes a checkpoint where the history would become too long with this turn."""
        room = self._budget.history - self._summary_tokens
        coming = self._coming(said)
        sizes = [passage.tokens for passage in pulled.passages]
        if not pulled.rest and sum(sizes) + coming <= room * _FULL:
            return
        kept_from = newest_that_fit(sizes, max(0, int(room * _KEPT) - coming))
        covered = [
            *await pull_rest(
                self._ctx, pulled, telling=self._telling, tokens=self._summarizer.prompt_tokens
            ),
            *pulled.passages[:kept_from],
        ]
        if not covered:
            return
        made = await self._summarizer.checkpoint(
            pulled.checkpoint, covered, tokens=self._summary_tokens
        )
        known = pulled.checkpoint.cursor if pulled.checkpoint is not None else ""

        def change(kept: object) -> object:
            now = Checkpoint.read(kept)
            # Another run may have made one meanwhile, from what it knew: that one stays.
            is_known = (now.cursor if now is not None else "") == known
            return made.document() if is_known else None

        if await self._checkpoint.change(change):
            gone = set[str]().union(*(passage.event_ids for passage in covered))
            still = set[str]().union(*(each.event_ids for each in pulled.passages[kept_from:]))
            await self._exchanges.forget(gone - still)

    @property
    def _summary_tokens(self) -> int:
        return max(48, min(1200, self._budget.history // 6))

    def _coming(self, said: int | None) -> int:
        """Returns what this turn will take of the history of the next."""
        most = self._budget.message
        rounds = sum(1 for each in self._turn if each.tool_calls)
        called = [each for each in self._turn if each.tool_calls or each.tool_call_id]
        return (
            min(text_tokens_up_to(most, self._ctx.text), most)
            + (most if said is None else min(said + 8, most))
            + min(messages_tokens(called), rounds * most)
            + 2 * 8
        )

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


async def _fitted(turn: Sequence[ChatMessage], tokens: int) -> list[ChatMessage]:
    """Returns a turn that fits; one that is long is weighed beside the other runs, not before."""
    if sum(len(text) for each in turn for text in texts_of(each)) <= _LONG_TURN:
        return fit_turn(turn, tokens)
    return await asyncio.to_thread(fit_turn, turn, tokens)


def _notes(pulled: Pulled) -> list[ChatMessage]:
    return [pulled.checkpoint.message()] if pulled.checkpoint is not None else []


def _steady_start(passages: Sequence[Passage], first: int, last: int) -> int:
    """Returns where to begin, between two places, so that the next turns would begin there too.

    It is for conversations that are longer than what may be told and have no checkpoint: the
    beginning is chosen by what stands there, not by how much follows, and so does not move with
    every turn.
    """
    choices = range(first, max(first + 1, min(last + 1, len(passages))))
    if not passages or first >= len(passages):
        return first
    return min(choices, key=lambda at: hashlib.sha256(passages[at].cursor.encode()).digest())
