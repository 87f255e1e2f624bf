"""The command: `python -m benchmarks`."""

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import uvloop

from benchmarks.machine import Machine
from benchmarks.processes import ProcessFault
from benchmarks.report import Row, table
from benchmarks.rounds import FULL, QUICK, Plan
from benchmarks.scenarios import SCENARIOS
from benchmarks.stage import standing
from benchmarks.ways import WrongRun

_RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Measures what was asked for, prints the report and writes it down."""
    arguments = _parse()
    plan = QUICK if arguments.quick else FULL
    before, started = Machine.now(), perf_counter()
    try:
        rows = uvloop.run(measure(arguments.only or tuple(SCENARIOS), plan))
    except (ProcessFault, WrongRun) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    elapsed, after = perf_counter() - started, Machine.now()
    print(table(rows))
    print()
    if plan.quick:
        print("Quick: few and short rounds, for a first look; `make bench` is to be believed.")
    print(
        f"Medians of {plan.rounds} rounds; the spread is of quartiles, of the ratio where there is "
        f"a floor.\n{elapsed:.0f} s on {before}; load {before.load:.1f} before, {after.load:.1f} "
        "after."
    )
    path = arguments.json or _RESULTS / f"{before.time:%Y%m%dT%H%M%SZ}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report(rows, plan, before, after), indent=2) + "\n", "utf-8")
    print(f"Written to {path}.")
    return 1 if arguments.strict and any(row.is_missed for row in rows) else 0


async def measure(names: Sequence[str], plan: Plan) -> list[Row]:
    """Measures scenarios by name."""
    rows: list[Row] = []
    async with standing() as stage:
        # What was built stays until the end: the collector need not look at it in the middle.
        gc.collect()
        gc.freeze()
        for name in names:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            rows += await SCENARIOS[name](stage, plan)
    return rows


def report(rows: Sequence[Row], plan: Plan, before: Machine, after: Machine) -> dict[str, object]:
    """Returns the whole report as JSON."""
    return {
        "quick": plan.quick,
        "rounds": plan.rounds,
        "turn_seconds": plan.seconds,
        "machine": before.to_json(),
        "load_after": after.load,
        "rows": [row.to_json() for row in rows],
    }


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measures the mesh against bare programs."
    )
    parser.add_argument("--quick", action="store_true", help="few and short rounds")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the report")
    parser.add_argument(
        "only", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; default: all"
    )
    arguments = parser.parse_args()
    for name in arguments.only:
        if name not in SCENARIOS:
            parser.error(f"there is no scenario {name!r}: choose from {', '.join(SCENARIOS)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
