"""Complete runs a second, everything journaled on SQLite at its safest."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarks.job import Job
from benchmarks.loads import runs_a_second
from benchmarks.report import Row, at_least
from benchmarks.rounds import Plan, take_turns
from benchmarks.stage import Stage

_CALLERS = 32
_RESULTS = 20
_UNIT = "runs/s"
_GOAL = at_least(0.8)
# The whole message and the end are results, too.
_JOB = Job(repeat=_RESULTS - 2)


async def measure(stage: Stage, plan: Plan) -> Sequence[Row]:
    """Measures against a relay that sends a host's frames, and against one result a frame."""
    await stage.echo.prepare(_JOB)
    load = partial(runs_a_second, callers=_CALLERS, seconds=plan.seconds)
    measured = await take_turns(
        {
            "host": partial(load, stage.echo, _JOB),
            "same": partial(load, stage.gateway, replace(_JOB, together=True)),
            "each": partial(load, stage.relay, _JOB),
        },
        plan.rounds,
    )
    runs = f"runs of {_RESULTS} results, {_CALLERS} callers"
    return [
        Row(f"{runs}; relay, same frames", _UNIT, measured["host"], measured["same"], _GOAL),
        Row(f"{runs}; relay, one result a frame", _UNIT, measured["host"], measured["each"]),
    ]
