"""Results a second when results wait."""

from collections.abc import Sequence
from functools import partial

from benchmarks.loads import results_a_second, size_job
from benchmarks.report import Goal, Row, at_least
from benchmarks.rounds import Measure, Plan, take_turns
from benchmarks.stage import Stage
from benchmarks.ways import Way

_UNIT = "results/s"
_AGAINST_EACH = {1: at_least(18), 64: at_least(8)}
_AGAINST_TOGETHER = at_least(0.85)
_FOREIGN = at_least(0.9)


async def measure(stage: Stage, plan: Plan) -> Sequence[Row]:
    """Measures 1 and 64 runs at once, and 64 of a runner without the SDK."""
    rows = []
    for streams, goal in _AGAINST_EACH.items():
        rows += await _measure(stage, plan, streams, goal)
    return rows


async def _measure(stage: Stage, plan: Plan, streams: int, goal: Goal) -> list[Row]:
    async def sized(way: Way, *, together: bool = False) -> Measure:
        job = await size_job(way, streams=streams, seconds=plan.seconds, together=together)
        return partial(results_a_second, way, job, streams=streams)

    contenders = {
        "host": await sized(stage.echo),
        "each": await sized(stage.relay),
        "together": await sized(stage.relay, together=True),
    }
    if streams > 1:
        contenders["foreign"] = await sized(stage.foreign)
    measured = await take_turns(contenders, plan.rounds)
    runs = "1 run" if streams == 1 else f"{streams} runs"
    host, each, together = (measured[name] for name in ("host", "each", "together"))
    rows = [
        Row(f"streaming, {runs}; relay, one result a frame", _UNIT, host, each, goal),
        Row(f"streaming, {runs}; relay, together", _UNIT, host, together, _AGAINST_TOGETHER),
    ]
    if streams > 1:
        what = f"streaming, {runs}, runner without SDK; relay, one a frame"
        rows.append(Row(what, _UNIT, measured["foreign"], each, _FOREIGN))
    return rows
