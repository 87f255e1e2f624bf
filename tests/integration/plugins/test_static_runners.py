"""Runners that somebody else runs, at addresses that the host was told."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host_service.registry import AddressInvalid, HealthPace, InstanceState, StaticRunners
from host_service.registry.static_runners import _disconnected
from tests.integration.plugins.mesh import Mesh, bare

MakeMesh = Callable[..., Mesh]
Run = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/desk.sock"


@pytest.fixture
def run(address: str) -> Iterator[Run]:
    """Runs a plugin at the address, as somebody else would."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*wrongs: str, plugin_id: str = "acme/desk") -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "RUNMESH_LISTEN": address, "RUNMESH_PLUGIN_ID": plugin_id}
        started.append(subprocess.Popen(bare(*wrongs), env=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


async def test_address_where_nobody_listens_is_dialled_until_somebody_does(
    make_mesh: MakeMesh, address: str, run: Run
) -> None:
    mesh = make_mesh()
    mesh.static.add("acme/desk", address)
    waiting = await mesh.until("desk", lambda each: bool(each.reason))
    assert waiting.state is InstanceState.STARTING
    assert waiting.found_by == "static"
    assert "UNAVAILABLE" in waiting.reason
    run()
    instance = await mesh.until("desk", InstanceState.SERVING)
    assert instance.process_id is None
    assert mesh.registry.pick("plugin:acme/desk/default") is instance


async def test_address_that_stays_silent_for_long_is_listed_as_unhealthy(
    make_mesh: MakeMesh, address: str
) -> None:
    mesh = make_mesh()
    impatient = StaticRunners(registry=mesh.registry, handshake_timeout_seconds=0.1)
    impatient.add("acme/desk", address)
    unhealthy = await mesh.until("desk", InstanceState.UNHEALTHY)
    assert "did not say SERVING" in unhealthy.reason
    assert "No such file" in unhealthy.reason
    await impatient.close()
    assert mesh.registry.instances() == ()


async def test_process_that_was_replaced_is_a_new_instance(
    make_mesh: MakeMesh, address: str, run: Run
) -> None:
    # Health is not looked at meanwhile: the connection tells it.
    mesh = make_mesh(health=HealthPace(interval_seconds=60))
    process = run()
    mesh.static.add("acme/desk", address)
    first = await mesh.until("desk", InstanceState.SERVING)
    first.acquire()
    process.kill()
    await mesh.until("desk", lambda each: each is first and not each.takes_runs, timeout_seconds=2)
    run()
    second = await mesh.until("desk", InstanceState.SERVING)
    assert second.instance_id != first.instance_id
    assert second.instance_token != first.instance_token
    # What was under way there has ended on its own connection.
    assert first in mesh.registry.instances()
    first.release()
    async with asyncio.timeout(2):
        while first in mesh.registry.instances():
            await mesh.registry.changed()


async def test_process_of_another_plugin_is_refused_and_a_right_one_taken(
    make_mesh: MakeMesh, address: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host_service.registry.static_runners._REFUSED_PAUSE_SECONDS", 0.1)
    mesh = make_mesh()
    impostor = run(plugin_id="acme/other")
    mesh.static.add("acme/desk", address)
    refused = await mesh.until("desk", InstanceState.REFUSED)
    assert "'acme/other'" in refused.reason
    impostor.kill()
    impostor.wait()
    run()
    await mesh.until("desk", InstanceState.SERVING)


async def test_frozen_process_is_noticed_though_its_connection_stays(
    make_mesh: MakeMesh, address: str, run: Run
) -> None:
    mesh = make_mesh(health=HealthPace(interval_seconds=0.6, timeout_seconds=0.2))
    process = run()
    mesh.static.add("acme/desk", address)
    instance = await mesh.until("desk", InstanceState.SERVING)
    process.send_signal(signal.SIGSTOP)
    assert await mesh.until("desk", InstanceState.UNHEALTHY) is instance
    process.send_signal(signal.SIGCONT)
    assert await mesh.until("desk", InstanceState.SERVING) is instance
    assert not instance.lost.is_set()
    disconnected = asyncio.create_task(_disconnected(instance))
    await asyncio.sleep(0.05)
    assert not disconnected.done()
    disconnected.cancel()


@pytest.mark.parametrize("address", ["10.1.2.3:7443", "runners.example:7443", "0.0.0.0:1"])
async def test_address_that_others_can_listen_in_on_is_refused_without_tls(
    make_mesh: MakeMesh, address: str
) -> None:
    mesh = make_mesh()
    with pytest.raises(AddressInvalid, match="without TLS only unix sockets and loopback"):
        mesh.static.add("acme/desk", address)
    assert mesh.registry.instances() == ()
    insecure = StaticRunners(registry=mesh.registry, insecure=True)
    insecure.add("acme/desk", address)
    await mesh.until("desk", InstanceState.STARTING)
    await insecure.close()
