"""Runs that take longer than they may."""

from __future__ import annotations

from typing import Final

from host_service.conformance.check import Check
from host_service.conformance.findings import Failed, Skipped
from host_service.conformance.holding import Way
from host_service.conformance.session import Session
from host_service.conformance.stopping import must_be_over

_SECONDS = 1.0


async def _of_the_call(session: Session) -> str:
    run = await session.holding.hold(
        "with a gRPC deadline", timeout_seconds=None, deadline_seconds=_SECONDS
    )
    if await session.holding.way() is Way.UNREAD:
        await run.end(_SECONDS)
        # Whoever does not read does not hear of the end either.
        run.reading.set()
    await session.must_end(run)
    if run.terminal is not None and run.ended_at - run.started_at < _SECONDS:
        raise Skipped("the run ended before its deadline")
    return await must_be_over(session, run, "its deadline passed")


async def _of_the_request(session: Session) -> str:
    if await session.holding.way() is Way.UNREAD:
        raise Skipped(
            "the runner answers too quickly: name a configuration that makes a run last, with "
            "--slow-config"
        )
    run = await session.holding.hold(
        "with a timeout", timeout_seconds=_SECONDS, deadline_seconds=None
    )
    limit = _SECONDS + session.patience.stop_seconds
    if not await run.end(limit):
        await run.close()
        raise Failed(
            expected=f"the run to end within {limit:g} s, with a timeout of {_SECONDS:g} s",
            got="a stream that is still open",
            advice="set the run's deadline from RunRequest.timeout when the request comes: a run "
            "that came over an attached stream has no other",
        )
    return f"ended after {run.ended_at - run.started_at:.1f} s"


CHECKS: Final = (
    Check(
        "deadline.call",
        "The call's gRPC deadline is the run's.",
        "run.proto, RunService.Run",
        _of_the_call,
    ),
    Check(
        "deadline.timeout",
        "A run ends when its `timeout` has passed.",
        "run.proto, RunRequest.timeout",
        _of_the_request,
    ),
)
