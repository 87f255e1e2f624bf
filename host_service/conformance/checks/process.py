"""The process itself: how it starts again, drains and ends. Only where the kit has started it."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Final

import grpc
from grpc_health.v1 import health_pb2

from host_service.conformance.check import Check
from host_service.conformance.findings import Failed
from host_service.conformance.holding import Way
from host_service.conformance.recorded_run import RecordedRun
from host_service.conformance.runner_process import RunnerProcess
from host_service.conformance.session import Session
from host_service.conformance.statuses import told

_LOOK_SECONDS = 0.05
# How soon a process that was told to end shows it.
_NOTICE_SECONDS = 1.0


async def _has_started(session: Session) -> str:
    return "" if _process(session).is_alive else "it has ended since"


async def _new_instance_id(session: Session) -> str:
    before = await session.handshake()
    await session.restart()
    after = await session.handshake()
    if before.instance_id == after.instance_id:
        raise Failed(
            expected="another instance_id after the process was started again",
            got=repr(after.instance_id),
            advice="make instance_id at random when the process starts",
        )
    return ""


async def _ends_idle(session: Session) -> str:
    process = _process(session)
    process.ask_to_end(signal.SIGTERM)
    seconds = await _must_exit(session, process, "with no run under way")
    await session.restart()
    return f"after {seconds:.1f} s"


async def _drains(session: Session) -> str:
    """Tells the process to end while a run is under way, and looks at what each of them does."""
    process = _process(session)
    way = await session.holding.way()
    held = await session.holding.hold("under way at SIGTERM") if way is not None else None
    try:
        process.ask_to_end(signal.SIGTERM)
        if held is None or held.ended.is_set():
            await _must_exit(session, process, "with no run under way")
            return "no run could be held up meanwhile"
        await _must_refuse(session, process, held)
        session.holding.release(held)
        # What lasts by its configuration lasts; it is cut off at the end of the grace.
        if way is not Way.CONFIG:
            await _must_finish(session, held)
        seconds = await _must_exit(session, process, "with a run under way")
        return f"after {seconds:.1f} s"
    finally:
        await session.restart()


async def _must_refuse(session: Session, process: RunnerProcess, held: RecordedRun) -> None:
    """Raises Failed unless a draining process takes no more runs and says NOT_SERVING."""
    give_up_at = time.monotonic() + _NOTICE_SECONDS
    while True:
        run = session.start("while draining")
        await session.must_end(run)
        session.runs.remove(run)
        health = await _health_of(session)
        if health is None:
            await _must_be_there(process, held)
        refused = run.status is grpc.StatusCode.UNAVAILABLE
        if refused and health == health_pb2.HealthCheckResponse.NOT_SERVING:
            return
        if time.monotonic() > give_up_at:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    got = [] if refused else [f"{told(run.status, run.details)} for another run"]
    if health == health_pb2.HealthCheckResponse.SERVING:
        got.append("a health check that says SERVING")
    raise Failed(
        expected=f"UNAVAILABLE for new runs, and NOT_SERVING, {_NOTICE_SECONDS:g} s after SIGTERM",
        got=" and ".join(got) or "a health check that is not answered",
        advice="set health to NOT_SERVING on SIGTERM, and refuse runs from then on",
    )


async def _health_of(session: Session) -> int | None:
    """What health says; None where it says nothing any more."""
    try:
        return await session.health()
    except Failed:
        return None


async def _must_be_there(process: RunnerProcess, held: RecordedRun) -> None:
    """Raises Failed if the process has ended with a run under way, or has dropped that."""
    if await process.exit(_NOTICE_SECONDS) is None and not held.ended.is_set():
        return
    raise Failed(
        expected="the run under way at SIGTERM to have its grace",
        got=f"a process that ended at once, and {told(held.status, held.details)}",
        advice="handle SIGTERM: take no more runs, and end when the last has ended",
    )


async def _must_finish(session: Session, held: RecordedRun) -> None:
    await session.must_end(held)
    if held.status is not grpc.StatusCode.OK or held.terminal is None:
        raise Failed(
            expected="the run under way at SIGTERM to end with its terminal result",
            got=f"{len(held.results)} results and {told(held.status, held.details)}",
            advice="stop the server only when the runs under way have ended",
        )


async def _must_exit(session: Session, process: RunnerProcess, when: str) -> float:
    """Returns after how many seconds the process ended; Failed where it does not."""
    begun = time.monotonic()
    grace_seconds = session.patience.grace_seconds
    ended = await process.exit(grace_seconds)
    if ended is None:
        raise Failed(
            expected=f"the process to end within {grace_seconds:g} s of SIGTERM, {when}",
            got="a process that lives on, and would be killed",
            advice="end the process on SIGTERM; cut off what still runs before the grace is over",
        )
    if ended.signal not in {None, signal.SIGTERM} or ended.code not in {None, 0}:
        raise Failed(
            expected=f"the process to end by itself on SIGTERM, {when}",
            got=f"a process that {ended}",
            advice="leave with exit code 0 when you were told to end",
        )
    return time.monotonic() - begun


def _process(session: Session) -> RunnerProcess:
    if session.process is None:
        raise AssertionError("a check that needs a process was made without one")
    return session.process


_SOURCE = "run.proto, how to write a runner"

#: Made before all others, by whoever starts the process.
START: Final = Check(
    "process.starts",
    "Its process listens on RUNMESH_LISTEN within 15 s of its start.",
    _SOURCE,
    _has_started,
    needs_process=True,
)
CHECKS: Final = (
    Check(
        "process.instance-id",
        "instance_id is new for every start of the process.",
        "discovery.proto, HandshakeResponse.instance_id",
        _new_instance_id,
        needs_process=True,
    ),
    Check(
        "process.drains",
        "Told to end, it takes no more runs and finishes those under way.",
        _SOURCE,
        _drains,
        needs_process=True,
    ),
    Check(
        "process.ends",
        "Told to end, it ends within the grace.",
        _SOURCE,
        _ends_idle,
        needs_process=True,
    ),
)
