"""Runs cancelled at random moments on a real host: neither it nor its runners keep anything.

`RUNMESH_MANY_RUNS` says how many; the promise is kept for ten thousand, which take two minutes.
"""

import asyncio
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import discovery_pb2, event_pb2, gateway_pb2

from tests.integration.host.calls import Caller, calling, message
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_desk_plugin
from tests.integration.host.processes import descendants, open_files, resident_bytes
from tests.integration.host.waiting import eventually

RUNS = int(os.environ.get("RUNMESH_MANY_RUNS", "600"))
WARM_UP = 300
AT_ONCE = 60
# What allocators keep for later, however many runs there were.
_GROWTH_BYTES = 24 * 1024 * 1024
_AGENTS = """\
agents:
- {id: stateful, runner_id: "plugin:acme/desk/stateful"}
- {id: steered, runner_id: "plugin:acme/desk/steered", follow_up: steer}
- {id: plain, runner_id: "plugin:acme/desk/plain"}
limits: {interrupt_grace_seconds: 1.0}
"""
UNENDED = (
    gateway_pb2.RUN_STATUS_ACCEPTED,
    gateway_pb2.RUN_STATUS_QUEUED,
    gateway_pb2.RUN_STATUS_RUNNING,
)


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds."""

    files: int
    threads: int
    resident_bytes: int


def held_by(pid: int) -> Held:
    return Held(
        files=len(list(open_files(pid))),
        threads=len(list(Path(f"/proc/{pid}/task").iterdir())),
        resident_bytes=resident_bytes(pid),
    )


def told(number: int, agent: str, mood: random.Random) -> event_pb2.EventEnvelope:
    """A message whose run ends at once, or never, or with the next of its session."""
    waits = "a steer:1" if agent == "steered" else "a hang"
    text = mood.choice(["a b c", "a hang", waits, "hang", "a " * 200])
    return message(text, event_id=f"many-{number}", conversation_id=str(number % 20))


async def come_and_go(caller: Caller, number: int, mood: random.Random) -> None:
    """Start a run, and cancel it, leave it, or both, at a random moment."""
    agent = mood.choice(["stateful", "steered", "plain"])
    leaves = mood.random() < 0.5
    call = caller.open(
        told(number, agent, mood),
        agent,
        on_disconnect=gateway_pb2.ON_DISCONNECT_CANCEL if leaves else 0,
    )
    try:
        item = await call.read()
        assert item is not grpc.aio.EOF
        await asyncio.sleep(mood.choice([0, 0.001, 0.01, 0.05]))
        if not leaves:
            await caller.cancel(item.accepted.run_id)
    finally:
        call.cancel()


async def crowd(caller: Caller, first: int, count: int) -> None:
    mood, some = random.Random(first), asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with some:
            await come_and_go(caller, number, mood)

    await asyncio.gather(*(one(number) for number in range(first, first + count)))


async def until_idle(caller: Caller) -> admin_pb2.GetHostResponse:
    """Return what the host says of itself once no run is left, on it or on a runner."""
    seen: list[admin_pb2.GetHostResponse] = []

    async def idle() -> bool:
        # What was steered, or waited, goes by itself when the crowd is gone; some of it hangs.
        unended = (await caller.list(statuses=UNENDED, page_size=100)).runs
        await asyncio.gather(*(caller.cancel(run.run_id) for run in unended))
        host = await caller.admin.GetHost(admin_pb2.GetHostRequest(), metadata=caller.metadata)
        runners = await caller.discovery.ListRunners(
            discovery_pb2.ListRunnersRequest(), metadata=caller.metadata
        )
        seen[:] = [host]
        return not unended and not (
            host.active_runs
            or host.waiting_runs
            or host.readers
            or any(instance.active_runs for instance in runners.instances)
        )

    await eventually(idle, seconds=40)
    return seen[0]


async def test_nothing_is_left_of_runs_that_are_cancelled_at_random_moments(
    make_host: Callable[..., HostProcess], tmp_path: Path
) -> None:
    write_desk_plugin(tmp_path / "plugins", tmp_path / "note")
    host = make_host(plugins=tmp_path / "plugins", config=_AGENTS).start()
    async with calling(host.addresses["grpc"], host.key) as caller:
        await crowd(caller, 0, WARM_UP)
        before = await until_idle(caller)
        runners = [each.pid for each in descendants(host.pid) if "desk.py" in each.command]
        assert runners
        held = {pid: held_by(pid) for pid in (host.pid, *runners)}
        await crowd(caller, WARM_UP, RUNS)
        after = await until_idle(caller)
        # Whatever was cancelled when: no run ended as if its runner had failed.
        failed = await caller.list(statuses=[gateway_pb2.RUN_STATUS_FAILED])
        assert [(run.failure.code, run.failure.message) for run in failed.runs] == []
        assert after.tasks <= before.tasks + 3

        def given_back() -> bool:
            now = {pid: held_by(pid) for pid in held}
            return all(now[pid].files <= held[pid].files + 2 for pid in held)

        await eventually(given_back)
        for pid, was in held.items():
            now = held_by(pid)
            assert now.threads <= was.threads + 1
            assert now.resident_bytes <= was.resident_bytes + _GROWTH_BYTES
