"""What a provider reports of its prompts corrects the estimate of the next ones.

Kept by model for all conversations of a workspace. Only a model that counts more than was
estimated changes anything: one that counts less may do so for a language that is not spoken in the
next turn, and a prompt that is too long fails.
"""

from collections.abc import Mapping
from typing import Any

from runner_sdk import RunContext

from .remembered import Remembered

_KEY = "token_ratios"
# A provider that is further off counts something else, such as all prompts of a run.
_MOST = 2.5
_SHORTEST_PROMPT = 150
# How much of the difference is taken back at once: one short prompt may look odd.
_RELAXING = 0.1
_NOTABLE = 0.02
_MOST_MODELS = 50


class Calibration:
    """Tokens that a model counts for each that was estimated.

    Args:
        ctx: The run.
        model_id: The model.
    """

    def __init__(self, ctx: RunContext, model_id: str) -> None:
        self._kept = Remembered(ctx, "runner", _KEY)
        self._model_id = model_id
        self.ratio = 1.0

    async def load(self) -> None:
        """Takes in what was learned before."""
        self.ratio = _ratio(await self._kept.read(), self._model_id)

    async def learn(self, *, estimated: int, reported: int) -> None:
        """Keeps what a prompt turned out to be.

        Args:
            estimated: Its tokens as estimated.
            reported: Its tokens as the provider reports them.
        """
        if estimated < _SHORTEST_PROMPT or reported > _MOST * estimated:
            return
        measured = max(1.0, reported / estimated)
        ratio = max(measured, self.ratio + _RELAXING * (measured - self.ratio))
        if abs(ratio - self.ratio) < _NOTABLE:
            return
        self.ratio = ratio

        def change(kept: Any) -> dict[str, Any]:
            ratios = dict(kept) if isinstance(kept, Mapping) else {}
            ratios.pop(self._model_id, None)
            newest = list(ratios.items())[-_MOST_MODELS + 1 :]
            return {**dict(newest), self._model_id: round(ratio, 3)}

        await self._kept.change(change)


def _ratio(kept: Any, model_id: str) -> float:
    ratio = kept.get(model_id) if isinstance(kept, Mapping) else None
    return min(_MOST, max(1.0, float(ratio))) if isinstance(ratio, int | float) else 1.0
