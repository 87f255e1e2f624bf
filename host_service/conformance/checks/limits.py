"""Many runs at once, more than the process takes, and readers that are slow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import grpc

from host_service.conformance.check import Check
from host_service.conformance.findings import Failed, Skipped
from host_service.conformance.recorded_run import RecordedRun
from host_service.conformance.samples import long_text
from host_service.conformance.session import Session
from host_service.conformance.statuses import must_be_well, told

_MANY = 32
# To hold more than this many runs would take longer than everything else.
_MOST_HELD = 64
_LONG_BYTES = 500_000
_PAUSE_SECONDS = 1.0
# One run's input, a few copies of it, and what an allocator keeps.
_GROWTH_BYTES = 128 * 1024 * 1024


async def _at_once(session: Session) -> str:
    count = min(session.limit or _MANY, _MANY)
    runs = await asyncio.gather(
        *(session.begin("many at once", f"This is number {at}.") for at in range(count))
    )
    for run in runs:
        await session.must_end(run)
        must_be_well(run)
    return f"{count} runs"


async def _limit(session: Session) -> str:
    limit = session.limit
    if limit == 0:
        raise Skipped("the process has no limit of its own: max_concurrent_runs is 0")
    if limit > _MOST_HELD:
        raise Skipped(f"max_concurrent_runs is {limit}, more than the kit holds up at once")
    held: Sequence[RecordedRun] = ()
    await session.holding.way()
    try:
        held = await asyncio.gather(
            *(
                session.holding.hold(f"of {limit} at once, number {at}")
                for at in range(1, limit + 1)
            )
        )
        extra = session.start(f"one more than {limit}")
        await session.must_end(extra)
        over = [run for run in held if run.ended.is_set()]
    finally:
        for run in held:
            session.holding.release(run)
            await run.close()
    refused = next((run for run in over if run.status is not grpc.StatusCode.OK), None)
    if refused is not None:
        raise Failed(
            expected=f"{limit} runs at once, as the handshake's max_concurrent_runs says",
            got=f"{refused.label}: {told(refused.status, refused.details)}",
            advice="take as many runs as you say, or say fewer",
        )
    if over:
        raise Skipped("runs ended before there were as many as the process takes")
    if extra.status is not grpc.StatusCode.RESOURCE_EXHAUSTED or extra.frames:
        raise Failed(
            expected=f"RESOURCE_EXHAUSTED and no result for a run more than {limit}",
            got=f"{len(extra.results)} results and {told(extra.status, extra.details)}",
            advice="count the runs under way, and refuse more at once: the host then waits or "
            "asks another instance; or say max_concurrent_runs 0",
        )
    return f"limit {limit}"


async def _slow_reader(session: Session) -> str:
    process = session.process
    before = process.memory_bytes if process is not None else 0
    run = await session.begin(
        "a slow reader", long_text(_LONG_BYTES), channel=session.new_channel(), reads=False
    )
    await asyncio.sleep(_PAUSE_SECONDS)
    growth = process.memory_bytes - before if process is not None else 0
    try:
        await session.health(session.patience.health_seconds)
        if session.limit != 1:
            await session.run("beside a slow reader")
    finally:
        run.reading.set()
    if growth > _GROWTH_BYTES:
        raise Failed(
            expected=f"at most {_GROWTH_BYTES // 2**20} MiB more memory while a reader waits",
            got=f"{growth // 2**20} MiB more after {_PAUSE_SECONDS:g} s",
            advice="wait until a result is taken before you make the next: use the writing call "
            "that waits, and a bounded queue",
        )
    await session.must_end(run)
    must_be_well(run)
    return f"{growth // 2**20} MiB more memory" if process is not None else ""


CHECKS: Final = (
    Check("load.at-once", "Runs go on beside each other.", "run.proto, RunService.Run", _at_once),
    Check(
        "load.limit",
        "More than max_concurrent_runs runs are refused, and no fewer.",
        "run.proto, RunService.Run",
        _limit,
    ),
    Check(
        "load.slow-reader",
        "A reader that is slow slows its own run, and nothing else.",
        "run.proto, RunResponse",
        _slow_reader,
    ),
)
