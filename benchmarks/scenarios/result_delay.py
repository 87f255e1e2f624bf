"""The delay of one result, from the runner's yield to the caller, at 200 results a second."""

from collections.abc import Sequence
from functools import partial

from benchmarks.job import Job
from benchmarks.loads import delay_milliseconds
from benchmarks.report import Row, at_most
from benchmarks.rounds import Plan, take_turns
from benchmarks.stage import Stage

_RESULTS_A_SECOND = 200
_GOAL = at_most(1.2)


async def measure(stage: Stage, plan: Plan) -> Sequence[Row]:
    """Measures one run at an even pace."""
    job = Job(
        repeat=round(plan.seconds * _RESULTS_A_SECOND),
        interval_seconds=1 / _RESULTS_A_SECOND,
        clock=True,
    )
    await stage.clock.prepare(job)
    measured = await take_turns(
        {
            "host": partial(delay_milliseconds, stage.clock, job),
            "relay": partial(delay_milliseconds, stage.relay, job),
        },
        plan.rounds,
    )
    what = f"delay of a result at {_RESULTS_A_SECOND} a second, p50; relay"
    return [Row(what, "ms", measured["host"], measured["relay"], _GOAL)]
