"""What holds for a runner that attached to the kit, beside all that holds for dialled ones."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from host_service.conformance.attach_bridge import AttachBridge
from host_service.conformance.check import Check, Reach
from host_service.conformance.findings import Failed
from host_service.conformance.samples import long_text
from host_service.conformance.session import Session
from host_service.validation import find_violations

_LONG_BYTES = 1_000_000
_LOOK_SECONDS = 0.05
_QUIET_SECONDS = 0.5
_MOST_SECONDS = 5.0
_COMES_BACK_SECONDS = 5.0


async def _hello(session: Session) -> str:
    stream = await _bridge(session).attached(session.patience.answer_seconds)
    violations = find_violations(stream.hello) if stream is not None else []
    problems = [str(each) for each in violations]
    if stream is not None and "1" not in stream.hello.protocol_versions:
        problems.append(f"protocol_versions {list(stream.hello.protocol_versions)}")
    if stream is not None and stream.hello.handshake.protocol_version:
        problems.append("handshake.protocol_version, which is for the host to pick")
    if problems:
        raise Failed(
            expected="an AttachHello as its comments say, with the version `1`",
            got="; ".join(problems),
            advice="say in the hello what Handshake and ListRunners would answer",
        )
    return ""


async def _comes_back(session: Session) -> str:
    bridge = _bridge(session)
    before = bridge.attachments
    await bridge.drop()
    if await bridge.attached(_COMES_BACK_SECONDS, after=before) is None:
        raise Failed(
            expected=f"another attachment within {_COMES_BACK_SECONDS:g} s of a dropped stream",
            got="none",
            advice="attach again with the same token when the stream ends with UNAVAILABLE, after "
            "a short pause that grows",
        )
    await session.run("after attaching again")
    return ""


async def _keeps_to_it(session: Session) -> str:
    """Leaves one long answer unread, so that no credit comes; then looks at what all runs did."""
    bridge = _bridge(session)
    run = await session.begin(
        "unread", long_text(_LONG_BYTES), channel=session.new_channel(), reads=False
    )
    await _until_quiet(bridge)
    run.reading.set()
    await session.must_end(run)
    if bridge.breaches:
        raise Failed(
            expected="a hello first and once, and no result of a run beyond its credit",
            got="; ".join(bridge.breaches[:3]),
            advice="count for each run: initial_credit and each AttachCredit allow results, each "
            "result sent takes one; wait when there is none left",
        )
    return f"{len(session.runs)} runs"


async def _until_quiet(bridge: AttachBridge) -> None:
    """Returns when a runner that nobody reads has stopped sending, or did not when it had to."""
    begun = changed_at = time.monotonic()
    before, first = bridge.results, bridge.results
    while not bridge.breaches and time.monotonic() < begun + _MOST_SECONDS:
        await asyncio.sleep(_LOOK_SECONDS)
        now = time.monotonic()
        if bridge.results != before:
            before, changed_at = bridge.results, now
        if before != first and now - changed_at > _QUIET_SECONDS:
            return


def _bridge(session: Session) -> AttachBridge:
    if session.bridge is None:
        raise AssertionError("a check of attached runners was made of another")
    return session.bridge


CHECKS: Final = (
    Check(
        "attach.hello",
        "An attached runner says who it is first.",
        "attach.proto, AttachHello",
        _hello,
        reach=Reach.ATTACHED,
    ),
    Check(
        "attach.comes-back",
        "It attaches again by itself when its stream is dropped.",
        "attach.proto, AttachService.Attach",
        _comes_back,
        reach=Reach.ATTACHED,
    ),
    Check(
        "attach.credit",
        "It sends no more results of a run than were credited.",
        "attach.proto, AttachCredit",
        _keeps_to_it,
        reach=Reach.ATTACHED,
    ),
)
