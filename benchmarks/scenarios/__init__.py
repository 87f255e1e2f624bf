"""The scenarios, each a part of the report."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from benchmarks.report import Row
from benchmarks.rounds import Plan
from benchmarks.scenarios import (
    artifacts,
    cancelling,
    chaos,
    complete_runs,
    host_calls,
    host_start,
    idle_memory,
    result_delay,
    run_start,
    streaming,
)
from benchmarks.stage import Stage
from benchmarks.stores import measure as measure_stores

Scenario = Callable[[Stage, Plan], Awaitable[Sequence[Row]]]

SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        # First, on a host that has not done anything: memory that was used once is used again.
        "memory": idle_memory.measure,
        "streaming": streaming.measure,
        "delay": result_delay.measure,
        "start": run_start.measure,
        "runs": complete_runs.measure,
        "cancel": cancelling.measure,
        "host-calls": host_calls.measure,
        "artifacts": artifacts.measure,
        "host-start": host_start.measure,
        "chaos": chaos.measure,
        "stores": measure_stores,
    }
)
