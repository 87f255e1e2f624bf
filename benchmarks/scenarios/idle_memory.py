"""The memory that one more active, idle run takes in the host."""

import asyncio
from collections.abc import Sequence

from benchmarks.job import Job
from benchmarks.loads import HeldRun
from benchmarks.processes import anonymous_memory_bytes
from benchmarks.report import Row, at_most
from benchmarks.rounds import Plan
from benchmarks.stage import Stage

_FIRST = 50
_MORE = 150
_GOAL = at_most(100)
# One piece, and then nothing for an hour.
_JOB = Job(repeat=2, interval_seconds=3600.0)
_SETTLE_SECONDS = 0.7


async def measure(stage: Stage, _plan: Plan) -> Sequence[Row]:
    """Looks at the host's memory before and after runs begin, and stay."""
    if anonymous_memory_bytes(stage.host.program.pid) is None:
        return []
    await stage.echo.prepare(_JOB)
    # What was used before is used again, not asked for: only the first time tells what a run takes.
    first = await _start(stage, _FIRST)
    before = anonymous_memory_bytes(stage.host.program.pid) or 0
    more = await _start(stage, _MORE)
    after = anonymous_memory_bytes(stage.host.program.pid) or 0
    await asyncio.gather(*(run.stop() for run in (*first, *more)))
    kibibytes = (after - before) / _MORE / 1024
    return [Row("memory of one more active, idle run, host", "KiB", [kibibytes], goal=_GOAL)]


async def _start(stage: Stage, count: int) -> list[HeldRun]:
    runs = [HeldRun(stage.echo.start(_JOB)) for _ in range(count)]
    for run in runs:
        await run.begun()
    await asyncio.sleep(_SETTLE_SECONDS)
    return runs
