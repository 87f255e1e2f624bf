"""Instances that fall silent, that are only busy, and that stop listening."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import grpc.aio
import pytest
from runmesh.v1 import context_pb2, run_pb2

from host_service.registry import HealthPace, Instance, InstanceState
from host_service.supervisor import RestartPolicy
from tests.integration.plugins.mesh import Mesh, bare, write_plugin
from tests.integration.plugins.processes import eventually, is_alive

MakeMesh = Callable[..., Mesh]

PACE = HealthPace(interval_seconds=1.0, timeout_seconds=0.4)


async def start(
    base: Path,
    make_mesh: MakeMesh,
    *wrongs: str,
    pace: HealthPace = PACE,
    restart: RestartPolicy | None = None,
) -> tuple[Mesh, Instance, int]:
    write_plugin(base, "desk", bare(*wrongs))
    mesh = make_mesh(health=pace, restart=restart)
    await mesh.supervisor.start()
    instance = await mesh.until("desk", InstanceState.SERVING)
    assert instance.process_id is not None
    return mesh, instance, instance.process_id


async def test_frozen_instance_is_noticed_within_the_interval_and_serves_when_it_goes_on(
    base: Path, make_mesh: MakeMesh
) -> None:
    mesh, instance, process = await start(base, make_mesh)
    os.kill(process, signal.SIGSTOP)
    frozen_at = asyncio.get_running_loop().time()
    await mesh.until("desk", InstanceState.UNHEALTHY)
    assert asyncio.get_running_loop().time() - frozen_at < PACE.interval_seconds + 0.5
    assert instance.reason == "its health check is not answered within 0.8 s"
    assert mesh.registry.pick("plugin:acme/desk/default") is None
    assert not instance.lost.is_set()
    os.kill(process, signal.SIGCONT)
    assert await mesh.until("desk", InstanceState.SERVING) is instance


async def test_run_on_a_silent_instance_goes_on(base: Path, make_mesh: MakeMesh) -> None:
    mesh, instance, process = await start(base, make_mesh, "run_seconds=0.1")
    instance.acquire()
    call = instance.run_stub.Run(run_pb2.RunRequest(context=context_pb2.RunContext(run_id="r")))
    await call.read()
    os.kill(process, signal.SIGSTOP)
    await mesh.until("desk", InstanceState.UNHEALTHY)
    os.kill(process, signal.SIGCONT)
    async with asyncio.timeout(5):
        assert await call.read() is grpc.aio.EOF
    instance.release()


async def test_process_that_stays_silent_is_replaced_and_what_it_has_may_end(
    base: Path, make_mesh: MakeMesh
) -> None:
    policy = RestartPolicy(silence_seconds=1.0)
    mesh, old, process = await start(base, make_mesh, "run_seconds=0.1", restart=policy)
    old.acquire()
    call = old.run_stub.Run(run_pb2.RunRequest(context=context_pb2.RunContext(run_id="r")))
    await call.read()
    os.kill(process, signal.SIGSTOP)
    new = await mesh.until("desk", lambda each: each.takes_runs and each is not old)
    assert mesh.registry.pick("plugin:acme/desk/default") is new
    # It was only busy for a while.
    os.kill(process, signal.SIGCONT)
    async with asyncio.timeout(5):
        assert await call.read() is grpc.aio.EOF
    old.release()
    await eventually(lambda: mesh.registry.instances() == (new,) and not is_alive(process))


async def test_process_that_is_frozen_for_good_is_ended(base: Path, make_mesh: MakeMesh) -> None:
    policy = RestartPolicy(silence_seconds=1.0, drain_seconds=0.5, stop_grace_seconds=0.5)
    mesh, old, process = await start(base, make_mesh, restart=policy)
    old.acquire()
    os.kill(process, signal.SIGSTOP)
    new = await mesh.until("desk", lambda each: each.takes_runs and each is not old)
    await eventually(lambda: mesh.registry.instances() == (new,) and not is_alive(process))
    assert old.lost.is_set()


async def test_instance_that_is_only_busy_is_not_taken_for_ill(
    base: Path, make_mesh: MakeMesh
) -> None:
    often = HealthPace(interval_seconds=0.5, timeout_seconds=0.75)
    mesh, instance, process = await start(base, make_mesh, "busy=1.0", pace=often)
    states = []

    async def watch() -> None:
        while True:
            await mesh.registry.changed()
            states.append(instance.state)

    watching = asyncio.create_task(watch())
    # Longer than the time limit of an answer, shorter than two of them.
    os.kill(process, signal.SIGUSR1)
    await asyncio.sleep(1.5)
    watching.cancel()
    assert states == []
    assert instance.takes_runs


async def test_instance_that_says_it_is_draining_gets_no_new_runs(
    base: Path, make_mesh: MakeMesh
) -> None:
    mesh, instance, process = await start(base, make_mesh, "drain")
    os.kill(process, signal.SIGUSR1)
    await mesh.until("desk", InstanceState.DRAINING)
    assert instance.reason == "its health check says NOT_SERVING"
    assert not instance.takes_runs


@pytest.mark.parametrize("runs", [0, 1])
async def test_process_that_no_longer_listens_is_replaced_once_its_runs_have_ended(
    base: Path, make_mesh: MakeMesh, runs: int
) -> None:
    mesh, first, process = await start(base, make_mesh, "deaf")
    for _ in range(runs):
        first.acquire()
    os.kill(process, signal.SIGUSR1)
    await mesh.until("desk", InstanceState.UNHEALTHY)
    if runs:
        await asyncio.sleep(0.3)
        # Draining would mean that it is being stopped.
        assert first.state is InstanceState.UNHEALTHY
        assert not first.lost.is_set()
        first.release()
    second = await mesh.until("desk", lambda each: each.takes_runs and each is not first)
    assert second.restarts == 1
