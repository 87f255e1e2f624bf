"""Cancelling a run while many are active: from the caller's call to the runner's code."""

import asyncio
import time
from collections.abc import Sequence

from benchmarks.job import Job
from benchmarks.loads import HeldRun
from benchmarks.report import Row, at_most
from benchmarks.rounds import Plan
from benchmarks.spread import percentile
from benchmarks.stage import Stage
from benchmarks.ways import HostWay, WrongRun

_ACTIVE = 200
_CANCELLED = 60
_GOAL = at_most(50)
# Each of the others says something once a second.
_JOB = Job(repeat=100_000, interval_seconds=1.0, clock=True)


async def measure(stage: Stage, plan: Plan) -> Sequence[Row]:
    """Cancels one run after another beside those that go on."""
    await stage.clock.prepare(_JOB)
    others = [HeldRun(stage.clock.start(_JOB)) for _ in range(_ACTIVE)]
    for run in others:
        await run.begun()
    slowest = []
    for _ in range(plan.rounds):
        delays = [await _cancel_one(stage.clock) for _ in range(_CANCELLED)]
        slowest.append(percentile(delays, 0.99))
    await asyncio.gather(*(run.stop() for run in others))
    what = f"cancel, p99, from the call to the runner's code, {_ACTIVE} runs active"
    return [Row(what, "ms", slowest, goal=_GOAL)]


async def _cancel_one(way: HostWay) -> float:
    """Returns how many milliseconds the cancellation of a run took to reach its code."""
    stream, called = way.start(_JOB), 0
    stopping = None
    heard = None
    async for results in stream.results():
        for result in results:
            if result.HasField("log"):
                heard = int(result.log.text)
        if stopping is None:
            called = time.monotonic_ns()
            stopping = asyncio.create_task(stream.stop())
    if stopping is not None:
        await stopping
    if heard is None:
        raise WrongRun("a cancelled run did not say when it heard of it")
    return (heard - called) / 1e6
