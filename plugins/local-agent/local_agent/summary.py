"""Makes checkpoints: the model summarizes; where it cannot, what was said is excerpted."""

from collections.abc import Sequence

from runmesh.v1.context_pb2 import ModelResource
from runmesh.v1.types_pb2 import TokenUsage

from runner_sdk import HostCallError, RunContext
from runner_sdk.errors import Unauthenticated

from .budget import Budget, cut_text
from .checkpoint import Checkpoint, extract, summary_prompt
from .history import Passage
from .settings import Settings

_MOST_SECONDS = 60.0
# It answers by rules, and has none for summaries.
_REHEARSAL = "rehearsal"


class Summarizer:
    """Makes the checkpoints of one run.

    Args:
        ctx: The run.
        model: The model that answers in the run.
        settings: The agent's configuration; it may name another model for summaries.

    Attributes:
        spent: What the model reported of each summary.
    """

    def __init__(self, ctx: RunContext, *, model: ModelResource, settings: Settings) -> None:
        given = {each.model_id: each for each in ctx.resources.models}
        self._ctx = ctx
        self._model = given.get(settings.summary_model_id, model)
        self._budget = Budget.of(self._model, settings)
        self.spent: list[TokenUsage] = []

    @property
    def prompt_tokens(self) -> int:
        """Tokens that the model is given at most."""
        # The estimate is not corrected for this model: it may be another than the one that answers.
        return self._budget.prompt * 2 // 3

    async def checkpoint(
        self, before: Checkpoint | None, covered: Sequence[Passage], *, tokens: int
    ) -> Checkpoint:
        """Returns the checkpoint that covers more passages; at least one.

        Args:
            before: The checkpoint so far.
            covered: What it is to cover beside, oldest first.
            tokens: Tokens of its summary at most.
        """
        messages = [message for passage in covered for message in passage.messages]
        summary = ""
        if self._model.provider != _REHEARSAL:
            question = summary_prompt(
                before, messages, tokens=tokens, prompt_tokens=self.prompt_tokens
            )
            try:
                answer = await self._ctx.host.models.invoke(
                    self._model.model_id, question, timeout_seconds=self._seconds()
                )
            except Unauthenticated:
                # The run is over.
                raise
            except HostCallError as error:
                self._ctx.logger.info("no summary was made: %s", error.reason)
            else:
                summary = answer.text.strip()
                if answer.usage is not None:
                    self.spent.append(answer.usage)
        return Checkpoint(
            cursor=covered[-1].cursor,
            summary=cut_text(summary, tokens) or extract(before, messages, tokens=tokens),
            passages=(before.passages if before is not None else 0) + len(covered),
        )

    def _seconds(self) -> float:
        """Returns how long a summary may take: the run has to end after it."""
        left = self._ctx.remaining_seconds()
        return _MOST_SECONDS if left is None else max(0.1, min(_MOST_SECONDS, left / 2))
