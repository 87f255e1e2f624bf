"""Connections that break under a stream, many times over: nothing of them stays in the host."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import gateway_pb2

from tests.integration.host.calls import (
    END,
    Caller,
    calling,
    collect_until,
    say,
    scripted,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.network import Network
from tests.integration.host.processes import open_files, resident_bytes
from tests.integration.host.waiting import eventually

CANCEL = gateway_pb2.ON_DISCONNECT_CANCEL
ROUNDS, AT_ONCE = 20, 25
# The first rounds fill what the host fills once: pools, caches, the allocator's arenas.
WARM_UP_ROUNDS = 6
# It is one or two; a leak of 20 KiB a stream would be as much.
GROWTH_BYTES = 8 * 1024 * 1024
# Such as a file that the database opened meanwhile.
SPARE = 4


@dataclass(frozen=True, slots=True)
class Load:
    """What a host has open.

    Attributes:
        runs: Runs under way or waiting.
        calls: Calls it serves.
        readers: Who reads the runs.
        tasks: Tasks of its event loop.
        descriptors: Open files and sockets.
        resident_bytes: Memory.
    """

    runs: int
    calls: int
    readers: int
    tasks: int
    descriptors: int
    resident_bytes: int


async def load_of(caller: Caller, host: HostProcess) -> Load:
    told = await caller.admin.GetHost(admin_pb2.GetHostRequest(), metadata=caller.metadata)
    return Load(
        runs=told.active_runs + told.waiting_runs,
        calls=told.active_calls,
        readers=told.readers,
        tasks=told.tasks,
        descriptors=len(list(open_files(host.pid))),
        resident_bytes=resident_bytes(host.pid),
    )


async def test_five_hundred_readers_whose_connections_break_leave_nothing(
    caller: Caller, host: HostProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    watched = caller.open(scripted(say("x"), {"await": str(go)}, END), "scripted")
    run_id = (await collect_until(watched, lambda so_far: bool(so_far.results))).run_id

    async def open_streams(network: Network, number: int) -> Any:
        async with calling(network.address, host.key) as leaving:
            match number % 3:
                case 0:
                    call = leaving.watching(run_id)
                case 1:
                    event = scripted(say("x"), {"sleep": 3600})
                    call = leaving.open(event, "scripted", on_disconnect=CANCEL)
                case _:
                    call = leaving.open(scripted(say("x"), {"sleep": 0.2}, END), "scripted")
            await collect_until(call, lambda so_far: bool(so_far.results))
            opened.release()
            await cut.wait()

    loads: list[Load] = []
    async with Network(host.addresses["grpc"]) as network:
        base = await load_of(caller, host)
        for _ in range(ROUNDS):
            opened, cut = asyncio.Semaphore(0), asyncio.Event()
            streams = [
                asyncio.create_task(open_streams(network, number)) for number in range(AT_ONCE)
            ]
            for _ in range(AT_ONCE):
                await opened.acquire()
            assert (await load_of(caller, host)).readers > AT_ONCE // 2
            network.cut()
            # It takes a fifth of a second, which is how long the runs that go on have to go.
            await eventually(partial(_is_back, caller, host, base))
            loads.append(await load_of(caller, host))
            cut.set()
            await asyncio.gather(*streams)
    go.touch()
    assert loads[-1].resident_bytes - loads[WARM_UP_ROUNDS].resident_bytes < GROWTH_BYTES


async def _is_back(caller: Caller, host: HostProcess, base: Load) -> bool:
    """Whether a host has no more open than before."""
    load = await load_of(caller, host)
    return (
        load.runs <= base.runs
        and load.calls <= base.calls
        and load.readers <= base.readers
        and load.tasks <= base.tasks + SPARE
        and load.descriptors <= base.descriptors + SPARE
    )
