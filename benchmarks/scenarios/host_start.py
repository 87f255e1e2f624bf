"""From the command to a host that is ready, with the shipped plugin and an empty database."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.processes import running_host
from benchmarks.report import Row, at_most
from benchmarks.rounds import Plan
from benchmarks.stage import Stage

_GOAL = at_most(1.5)


async def measure(stage: Stage, plan: Plan) -> Sequence[Row]:
    """Starts hosts one after another, each on a new data folder."""
    seconds = []
    for _ in range(plan.rounds):
        with TemporaryDirectory(dir=stage.folder) as folder:
            started = perf_counter()
            async with running_host(Path(folder)):
                seconds.append(perf_counter() - started)
    return [Row("host start to ready, empty database", "s", seconds, goal=_GOAL)]
