"""Runners that somebody else runs, at addresses that the host was told."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from runmesh.v1 import context_pb2, run_pb2

from host_service.registry import AddressInvalid, HealthPace, InstanceState, StaticRunners
from host_service.registry.liveness import CutOff
from host_service.registry.run_stream import RunnerFault
from host_service.registry.static_runners import _disconnected
from tests.integration.plugins.mesh import Mesh, bare

MakeMesh = Callable[..., Mesh]
REQUEST = run_pb2.RunRequest(context=context_pb2.RunContext(run_id="r"))
Run = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/desk.sock"


@pytest.fixture
def run(address: str) -> Iterator[Run]:
    """Runs a plugin at the address, as somebody else would."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        *wrongs: str, plugin_id: str = "acme/desk", at: str = address
    ) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "RUNMESH_LISTEN": at, "RUNMESH_PLUGIN_ID": plugin_id}
        started.append(subprocess.Popen(bare(*wrongs), env=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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


class Wire:
    """A way to an address that can be cut so that neither end is told.

    Args:
        port: Where the runner listens.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self.address = ""

    async def begin(self) -> None:
        """Listens."""
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self, *, for_good: bool) -> None:
        """Carries nothing over the connections there are; and takes no new ones, for good."""
        for task in self._tasks:
            task.cancel()
        if for_good and self._server is not None:
            self._server.close()

    def end(self) -> None:
        """Closes everything."""
        self.cut(for_good=True)
        for writer in self._writers:
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [back, writer]
        for source, target in ((reader, back), (there, writer)):
            self._tasks.add(asyncio.create_task(_carry(source, target)))


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    target.close()


HURRIED = HealthPace(interval_seconds=1.0, timeout_seconds=0.2)


@pytest.mark.parametrize("for_good", [True, False])
async def test_connection_that_was_cut_on_the_way_is_found_and_its_runs_end(
    make_mesh: MakeMesh, run: Run, free_port: int, for_good: bool
) -> None:
    mesh = make_mesh(health=HURRIED)
    run(at=f"127.0.0.1:{free_port}")
    wire = Wire(free_port)
    await wire.begin()
    mesh.static.add("acme/desk", wire.address)
    first = await mesh.until("desk", InstanceState.SERVING)
    first.acquire()
    stream = first.open_run(REQUEST, timeout_seconds=None, metadata=())
    assert await stream.read()

    wire.cut(for_good=for_good)
    with pytest.raises(RunnerFault) as raised:
        await asyncio.wait_for(stream.read(), 5)
    first.release()
    assert (raised.value.code, raised.value.retryable) == ("runner.unavailable", True)
    assert "its connection was cut on the way" in str(raised.value)
    assert first.lost.is_set()
    if not for_good:
        second = await mesh.until("desk", lambda each: each.takes_runs and each is not first)
        assert second.instance_id == first.instance_id
    await mesh.static.close()
    wire.end()


async def test_frozen_process_at_a_tcp_address_is_not_taken_for_cut_off(
    make_mesh: MakeMesh, run: Run, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is asked each time, not once in a while.
    monkeypatch.setattr("host_service.registry.liveness._ASK_AGAIN_SECONDS", 0.0)
    mesh = make_mesh(health=HURRIED)
    process = run("run_seconds=5", at=f"127.0.0.1:{free_port}")
    mesh.static.add("acme/desk", f"127.0.0.1:{free_port}")
    instance = await mesh.until("desk", InstanceState.SERVING)
    instance.acquire()
    stream = instance.open_run(REQUEST, timeout_seconds=None, metadata=())
    assert await stream.read()
    process.send_signal(signal.SIGSTOP)
    await mesh.until("desk", InstanceState.UNHEALTHY)
    await asyncio.sleep(3)
    process.send_signal(signal.SIGCONT)
    assert await mesh.until("desk", InstanceState.SERVING) is instance
    assert await asyncio.wait_for(stream.read(), 10) is None
    instance.release()


async def test_process_that_was_busy_for_a_while_is_not_taken_for_cut_off(
    make_mesh: MakeMesh, run: Run, free_port: int
) -> None:
    mesh = make_mesh()
    process = run("busy=0.5", at=f"127.0.0.1:{free_port}")
    mesh.static.add("acme/desk", f"127.0.0.1:{free_port}")
    instance = await mesh.until("desk", InstanceState.SERVING)
    process.send_signal(signal.SIGUSR1)
    # It answers on both connections before the patience with the new one ends.
    cut_off = CutOff(HealthPace(timeout_seconds=2))
    assert not await cut_off.is_so(instance.address, instance.channel, instance.dial)
