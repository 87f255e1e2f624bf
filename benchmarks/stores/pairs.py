"""What takes less than a millisecond is compared one by one, in turns."""

from collections.abc import Awaitable, Callable
from time import perf_counter

from benchmarks.spread import percentile

Step = Callable[[], Awaitable[None]]


async def in_pairs(
    measured: Step, floor: Step, *, rounds: int, times: int
) -> tuple[list[float], list[float]]:
    """Returns the median times of two steps in each round, in ms.

    What else the machine does comes and goes within a round: turns of one step each meet the same.
    """
    medians: tuple[list[float], list[float]] = ([], [])
    for round_ in range(rounds + 1):
        took: tuple[list[float], list[float]] = ([], [])
        for _ in range(times):
            for step, into in zip((measured, floor), took, strict=True):
                started = perf_counter()
                await step()
                into.append((perf_counter() - started) * 1e3)
        # The first round warms up.
        if round_:
            for median, into in zip(medians, took, strict=True):
                median.append(percentile(into, 0.5))
    return medians
