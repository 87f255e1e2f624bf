"""Runs that are to stop: by a cancelled call, and by an interrupt."""

from __future__ import annotations

import uuid
from typing import Final

import grpc
import grpc.aio

from host_service.conformance.check import Check, Reach
from host_service.conformance.findings import Failed, Skipped
from host_service.conformance.holding import Way
from host_service.conformance.session import Session
from host_service.conformance.statuses import told
from host_service.conformance.stopping import must_be_over

# The stream ends with the run; its last frames may be a moment behind the answer.
_STREAM_SECONDS = 1.0


async def _cancelled_call(session: Session) -> str:
    run = await session.holding.hold("to be cancelled")
    if run.ended.is_set():
        raise Skipped("the run ended before it could be cancelled")
    run.cancel()
    await run.end(session.patience.answer_seconds)
    return await must_be_over(session, run, "its call was cancelled")


async def _without_capability(session: Session) -> str:
    if any(each.capabilities.interrupt for each in session.manifests):
        raise Skipped("a runner of the process has the capability")
    try:
        await session.interrupt(str(uuid.uuid4()), grace_seconds=session.patience.grace_seconds)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return ""
        got = told(error.code(), error.details())
    else:
        got = "an answer"
    raise Failed(
        expected="UNIMPLEMENTED, since no manifest has the capability `interrupt`",
        got=got,
        advice="leave Interrupt unimplemented, or say `interrupt: true` in the manifest",
    )


async def _unknown_run(session: Session) -> str:
    _must_have_capability(session)
    answer = await _interrupt(session, str(uuid.uuid4()))
    if answer:
        raise Failed(
            expected="was_active false for a run that is not under way here",
            got="was_active true",
            advice="answer at once with was_active false where there is nothing to stop",
        )
    return ""


async def _stops(session: Session) -> str:
    _must_have_capability(session)
    run = await session.holding.hold("to be interrupted")
    # Whoever is interrupted may have a last word: somebody must hear it.
    run.reading.set()
    if run.ended.is_set():
        raise Skipped("the run ended before it could be interrupted")
    was_active = await _interrupt(session, run.run_id)
    if not was_active and await session.holding.way() is Way.UNREAD:
        await run.close()
        raise Skipped("the run ended before it could be interrupted")
    if not was_active:
        raise Failed(
            expected="was_active true for a run that is under way",
            got="was_active false",
            advice="keep the runs under way by their run_id",
        )
    if not await run.end(_STREAM_SECONDS):
        await run.close()
        raise Failed(
            expected="the run's stream to end when Interrupt answers",
            got=f"a stream that was still open {_STREAM_SECONDS:g} s later",
            advice="answer Interrupt when the run has stopped, not when it was told to",
        )
    end = run.terminal
    if end is None or run.status is not grpc.StatusCode.OK:
        raise Failed(
            expected="run_failed with code `cancelled` at the end of an interrupted run",
            got=f"{len(run.results)} results, none terminal, and {told(run.status, run.details)}",
            advice="end the stream with run_failed code `cancelled` and status OK",
        )
    if end.HasField("run_failed") and end.run_failed.code != "cancelled":
        raise Failed(
            expected="code `cancelled` in the run_failed of an interrupted run",
            got=repr(end.run_failed.code),
            advice="say `cancelled`: other codes are for runs that failed by themselves",
        )
    if await _interrupt(session, run.run_id):
        raise Failed(
            expected="was_active false when the same run is interrupted again",
            got="was_active true",
            advice="forget a run when it has ended",
        )
    return ""


def _must_have_capability(session: Session) -> None:
    if not session.manifest.capabilities.interrupt:
        raise Skipped("the manifest does not have the capability `interrupt`")


async def _interrupt(session: Session, run_id: str) -> bool:
    """Interrupts a run; returns whether it was under way."""
    grace_seconds = session.patience.grace_seconds
    try:
        answer = await session.interrupt(run_id, grace_seconds=grace_seconds)
    except grpc.aio.AioRpcError as error:
        raise Failed(
            expected=f"an answer to Interrupt within its grace of {grace_seconds:g} s",
            got=told(error.code(), error.details()),
            advice="stop the run's work and answer then; never wait for something that an "
            "interrupted run does not do any more",
        ) from error
    return answer.was_active


_INTERRUPT = "run.proto, RunService.Interrupt"

CHECKS: Final = (
    Check(
        "stop.cancelled-call",
        "A cancelled call means that the run is over.",
        "run.proto, RunService.Run",
        _cancelled_call,
    ),
    Check(
        "stop.interrupt",
        "An interrupted run stops, says so, and Interrupt answers then.",
        _INTERRUPT,
        _stops,
    ),
    Check(
        "stop.interrupt-unknown",
        "Interrupt answers at once for a run that is not under way.",
        _INTERRUPT,
        _unknown_run,
    ),
    Check(
        "stop.interrupt-unimplemented",
        "Without the capability Interrupt is UNIMPLEMENTED.",
        _INTERRUPT,
        _without_capability,
        reach=Reach.DIALLED,
    ),
)
