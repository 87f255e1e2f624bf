"""Runs that share one stream, without a network."""

import asyncio
from typing import Any

import pytest
from runmesh.v1 import attach_pb2, context_pb2, run_pb2

from host_service.registry.attached import Attached, AttachedRun
from host_service.registry.run_stream import RunnerFault

_INSTANCE: Any = None  # Whoever ends the stream says what became of it; nobody else is asked.


def opened(attached: Attached, run_id: str) -> AttachedRun:
    request = run_pb2.RunRequest(context=context_pb2.RunContext(run_id=run_id))
    return attached.open_run(_INSTANCE, request, timeout_seconds=None, metadata=())


async def fault_of(run: AttachedRun) -> RunnerFault:
    with pytest.raises(RunnerFault) as caught:
        await run.read()
    return caught.value


async def test_run_that_was_never_sent_may_be_tried_elsewhere() -> None:
    attached = Attached(initial_credit=4)
    sent, unsent = opened(attached, "sent"), opened(attached, "unsent")
    assert (await attached.next_down()).run.context.run_id == "sent"
    attached.lose("its connection was lost")
    assert ((await fault_of(sent)).code, (await fault_of(sent)).never_started) == (
        "runner.crashed",
        False,
    )
    assert (await fault_of(unsent)).never_started
    assert (await fault_of(opened(attached, "late"))).never_started


async def test_run_that_is_cancelled_before_it_is_sent_is_not() -> None:
    attached = Attached(initial_credit=4)
    opened(attached, "cancelled").cancel()
    opened(attached, "wanted")
    assert (await attached.next_down()).run.context.run_id == "wanted"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(attached.next_down(), 0.02)


async def test_what_is_said_of_no_run_is_ignored() -> None:
    attached = Attached(initial_credit=4)
    attached.take(attach_pb2.AttachRequest(run_ended=attach_pb2.AttachRunEnded(run_id="other")))
    run = opened(attached, "one")
    attached.take(attach_pb2.AttachRequest(run_ended=attach_pb2.AttachRunEnded(run_id="one")))
    assert await run.read() is None
