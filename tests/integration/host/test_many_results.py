"""A run of very many results: who reads it slowly costs no memory, and nobody else anything."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from runmesh.v1 import gateway_pb2

from tests.integration.host.calls import (
    END,
    Answer,
    Caller,
    collect,
    collect_until,
    message,
    scripted,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.processes import resident_bytes
from tests.integration.host.refusals import refusal_of

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
MIB = 1024 * 1024
# Together 200,000 results: on the wire as much as the host may grow, or more.
MESSAGES, PIECES, PIECE_BYTES, IN_ONE_FRAME = 200, 999, 160, 50
RESULTS = MESSAGES * (PIECES + 1)
# Buffers of the readers, text in progress, what the database caches, and what the allocator keeps.
GROWTH_BYTES = 48 * MIB
PAUSE_SECONDS = 1.0


@asynccontextmanager
async def largest_size(pid: int) -> AsyncIterator[list[int]]:
    """Looks at the memory of a process again and again; the sizes are in the list."""
    sizes = [resident_bytes(pid)]

    async def look() -> None:
        while True:
            sizes.append(resident_bytes(pid))
            await asyncio.sleep(0.05)

    looking = asyncio.create_task(look())
    try:
        yield sizes
    finally:
        looking.cancel()


async def read_slowly(call: Any, seen: Answer, run_ended: asyncio.Event) -> None:
    """Takes one item a second; when the run has ended, what still waits on the way to it."""
    while (item := await call.read()) is not grpc.aio.EOF:
        seen.take(item)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(run_ended.wait(), PAUSE_SECONDS)


async def read_on(caller: Caller, run_id: str) -> Answer:
    """Watches a run as fast as it can, and comes back as often as it is told to."""
    seen = Answer()
    while "ended" not in seen.items:
        after = seen.results[-1].sequence if seen.results else 0
        with contextlib.suppress(grpc.aio.AioRpcError):
            await collect(caller.watching(run_id, after), seen)
    return seen


async def test_slow_watcher_of_very_many_results_is_ended_and_costs_nobody_anything(
    narrow: Caller, narrow_host: HostProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    flood = {"flood": [MESSAGES, PIECES, PIECE_BYTES, IN_ONE_FRAME]}
    call = narrow.open(scripted({"await": str(go)}, flood, END, conversation_id="many"), "scripted")
    live = await collect_until(call, lambda so_far: bool(so_far.items))
    slow = Answer()
    ended = asyncio.Event()
    reading = asyncio.create_task(read_slowly(narrow.watching(live.run_id), slow, ended))
    watching = asyncio.create_task(read_on(narrow, live.run_id))
    async with largest_size(narrow_host.pid) as sizes:
        go.touch()
        others = asyncio.create_task(_others(narrow))
        live = await collect(call, live)
        ended.set()
        await others
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await reading
        refusal = refusal_of(caught.value)
    assert max(sizes) - sizes[0] < GROWTH_BYTES
    # The caller was shown all of it.
    live.check_numbers()
    assert live.ended.status == COMPLETED
    assert len(live.results) == RESULTS + 1
    assert len(live.messages) == MESSAGES
    # The slow one can go on where it stopped.
    assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "OVERLOADED")
    slow.check_numbers()
    after = int(refusal.facts["last_sequence"])
    assert after == slow.results[-1].sequence
    rest = await narrow.watch(live.run_id, after)
    rest.check_numbers(after)
    assert len(slow.messages) + len(rest.messages) == MESSAGES
    assert rest.ended == live.ended
    # Nor does one that was told to come back, if it was, lack anything.
    watched = await watching
    assert len(watched.messages) == MESSAGES
    watched.check_numbers()
    assert watched.ended == live.ended
    # What is kept is whole.
    whole = await narrow.watch(live.run_id)
    assert len(whole.results) == MESSAGES + 1
    assert {len(text) for text in whole.messages} == {PIECES * PIECE_BYTES}


async def _others(caller: Caller) -> None:
    """Runs of others, one after another; fails when one takes long."""
    for count in range(1, 11):
        answer = await caller.dispatch(message(f"quick {count}"))
        assert answer.text == f"quick {count}"
