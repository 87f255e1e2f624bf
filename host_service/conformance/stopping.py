"""How the kit sees from outside whether a run is over in the runner."""

from __future__ import annotations

import asyncio
import time

import grpc
import grpc.aio

from host_service.conformance.findings import Failed, Skipped
from host_service.conformance.holding import Way
from host_service.conformance.recorded_run import RecordedRun
from host_service.conformance.session import Session

_LOOK_SECONDS = 0.1
_MORE_CALLS_SECONDS = 0.5
_ADVICE = (
    "watch the call's own cancellation (a context, a token, an exception in your gRPC library): "
    "stop the run's work when it comes, and check it between steps"
)


async def must_be_over(session: Session, run: RecordedRun, why: str) -> str:
    """Raises Failed unless a run that nobody reads on has stopped; returns what it was seen by.

    Skipped where a runner gives nothing to see it by.
    """
    seen = []
    if session.limit == 1:
        await _slot_is_free(session, why)
        seen.append("its slot is free")
    calls = run.grant.calls
    if session.manifest.capabilities.interrupt:
        if not seen:
            # No sign comes when it stops: an interrupt would stop it, so there is one look only.
            await asyncio.sleep(session.patience.stop_seconds)
        await _is_not_active(session, run, why)
        seen.append("an interrupt found nothing to stop")
    if await session.holding.way() is Way.HOST:
        if not seen:
            await asyncio.sleep(session.patience.stop_seconds)
        run.grant.released.set()
        await asyncio.sleep(_MORE_CALLS_SECONDS)
        late = [
            call
            for call in session.calls
            if call.grant is run.grant and call.at > run.ended_at + session.patience.stop_seconds
        ]
        if late:
            raise Failed(
                expected=f"no calls to the host {session.patience.stop_seconds:g} s after {why}",
                got=f"{late[0].method} of {run.label}, "
                f"{late[0].at - run.ended_at:.1f} s after, one of {len(late)}",
                advice=_ADVICE,
            )
        if run.grant.calls > calls or not seen:
            seen.append("it made no further call")
    if not seen:
        raise Skipped(
            "nothing shows whether it stopped: the runner has no `interrupt`, takes more than one "
            "run at once, and does not call the host"
        )
    return ", ".join(seen)


async def _slot_is_free(session: Session, why: str) -> None:
    """With one slot, another run is taken only when the first is over."""
    give_up_at = time.monotonic() + session.patience.stop_seconds
    while True:
        other = session.start("after one that was stopped")
        await session.must_end(other)
        if other.status is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            return
        session.runs.remove(other)
        if time.monotonic() > give_up_at:
            raise Failed(
                expected=f"its slot to be free {session.patience.stop_seconds:g} s after {why}",
                got=f"RESOURCE_EXHAUSTED: {other.details}",
                advice=_ADVICE,
            )
        await asyncio.sleep(_LOOK_SECONDS)


async def _is_not_active(session: Session, run: RecordedRun, why: str) -> None:
    try:
        answer = await session.interrupt(run.run_id, grace_seconds=session.patience.answer_seconds)
        got = "was_active true" if answer.was_active else ""
    except grpc.aio.AioRpcError as error:
        got = f"an Interrupt that ends with {error.code().name}"
    if got:
        raise Failed(
            expected=f"nothing left to interrupt {session.patience.stop_seconds:g} s after {why}",
            got=got,
            advice=_ADVICE,
        )
