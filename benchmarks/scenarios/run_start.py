"""From the event to the first delta of its run, with everything on."""

from collections.abc import Sequence
from functools import partial

from benchmarks.job import Job
from benchmarks.loads import first_delta_milliseconds
from benchmarks.report import Row, at_most
from benchmarks.rounds import Plan, take_turns
from benchmarks.stage import Stage

_GOALS = {1: at_most(1.35), 8: at_most(1.25)}
_JOB = Job(repeat=1)


async def measure(stage: Stage, plan: Plan) -> Sequence[Row]:
    """Measures 1 and 8 callers that go on as soon as their run has ended."""
    await stage.echo.prepare(_JOB)
    rows = []
    for callers, goal in _GOALS.items():
        load = partial(first_delta_milliseconds, job=_JOB, callers=callers, seconds=plan.seconds)
        measured = await take_turns(
            {"host": partial(load, stage.echo), "relay": partial(load, stage.relay)}, plan.rounds
        )
        what = f"event to first delta, p50, {callers} caller{'s' * (callers > 1)}; relay"
        rows.append(Row(what, "ms", measured["host"], measured["relay"], goal))
    return rows
