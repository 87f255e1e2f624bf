"""Rounds: what is compared is measured in turns, A B A B, so that both meet the same machine."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

Measure = Callable[[], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure.

    Attributes:
        rounds: How often each contender has its turn.
        seconds: How long a turn measures.
        quick: Whether this is the short plan, whose figures are for a first look.
    """

    rounds: int
    seconds: float
    quick: bool


QUICK = Plan(rounds=3, seconds=0.6, quick=True)
FULL = Plan(rounds=7, seconds=2.0, quick=False)


async def take_turns(contenders: Mapping[str, Measure], rounds: int) -> dict[str, list[float]]:
    """Measures each contender once a round, and returns what it measured, by name.

    One round before the first is thrown away: it warms up processes and connections.
    """
    for measure in contenders.values():
        await measure()
    measured: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            measured[name].append(await measure())
    return measured
