"""A plugin's process: where it listens, what it serves, and how it ends."""

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from runmesh.v1 import discovery_pb2, discovery_pb2_grpc

from runner_sdk import AgentRunner, Manifest, ManifestError, RunContext, agent_runner, serve
from runner_sdk._listen import listen_address
from runner_sdk._server import RunnerServer
from runner_sdk.errors import ServeError
from runner_sdk.testing import RunOutcome, StandInHost
from tests.unit.runner_sdk.loopback import serving

_PROGRAM = Path(__file__).with_name("a_plugin.py")


@agent_runner
async def idle(ctx: RunContext) -> None:
    """Does nothing."""


class Process:
    """A plugin's process, and the file marks it leaves."""

    def __init__(self, process: asyncio.subprocess.Process, address: str, marks: Path) -> None:
        self.process = process
        self.address = address
        self.marks = marks

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit_code(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 8)

    @property
    def cleaned(self) -> bool:
        return (self.marks / "cleaned").exists()


@contextlib.asynccontextmanager
async def plugin(marks: Path, *arguments: str, **environment: str) -> AsyncIterator[Process]:
    """Starts the program and waits until it says where it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(_PROGRAM),
        *arguments,
        env={"MARKS": str(marks), "PATH": os.environ["PATH"], **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        line = (await asyncio.wait_for(process.stderr.readline(), 10)).decode()
        assert "acme/test listens on " in line, line + (await process.stderr.read()).decode()
        yield Process(process, line.rpartition(" ")[2].strip(), marks)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.fixture
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A path that is short enough for a socket."""
    path = f"/tmp/runmesh-sdk-test-{os.getpid()}.sock"
    yield f"unix:{path}"
    Path(path).unlink(missing_ok=True)


async def test_a_process_serves_where_the_host_says_and_ends_on_sigterm(
    tmp_path: Path, socket: str
) -> None:
    async with plugin(
        tmp_path, RUNMESH_LISTEN=socket, RUNMESH_PLUGIN_ID="somebody/else"
    ) as process:
        assert process.address == socket
        assert _mode(socket) & 0o077 == 0, "the socket is the user's alone"
        async with StandInHost(address=socket) as host:
            assert host.handshake.plugin_id == "acme/test", "never what the environment says"
            assert (await host.run("0")).text == "started and done"
            reader = await _begin(host, "0.2")
            process.signal(signal.SIGTERM)
            assert (await reader).text == "started and done"
            assert await process.exit_code() == 0
    assert not _exists(socket)


async def test_by_hand_a_free_port_of_this_machine_is_chosen_and_said(tmp_path: Path) -> None:
    async with plugin(tmp_path) as process:
        assert process.address.startswith("127.0.0.1:")
        async with StandInHost(address=process.address) as host:
            assert (await host.run("0")).text == "started and done"
        process.signal(signal.SIGINT)
        assert await process.exit_code() == 0


async def test_runs_that_outlast_the_grace_clean_up_before_the_process_ends(
    tmp_path: Path, socket: str
) -> None:
    async with (
        plugin(tmp_path, socket, GRACE="0.1") as process,
        StandInHost(address=socket) as host,
    ):
        reader = await _begin(host, "wait")
        process.signal(signal.SIGTERM)
        outcome = await reader
        assert await process.exit_code() == 0
        assert process.cleaned

    assert outcome.failed is not None
    assert outcome.failed.code == "runner.unavailable"


async def test_a_second_signal_ends_the_grace(tmp_path: Path, socket: str) -> None:
    async with (
        plugin(tmp_path, socket, GRACE="60") as process,
        StandInHost(address=socket) as host,
    ):
        reader = await _begin(host, "wait")
        process.signal(signal.SIGTERM)
        await asyncio.sleep(0.05)
        process.signal(signal.SIGTERM)
        assert (await reader).failed is not None
        assert await process.exit_code() == 0
        assert process.cleaned


async def test_a_process_ends_although_a_run_ignores_its_cancellation(
    tmp_path: Path, socket: str
) -> None:
    async with (
        plugin(tmp_path, socket, GRACE="0", CLEANUP="0.3") as process,
        StandInHost(address=socket) as host,
    ):
        reader = await _begin(host, "deaf")
        process.signal(signal.SIGTERM)
        assert await process.exit_code() == 1
        with pytest.raises(aio.AioRpcError):
            await reader


async def test_a_process_ends_although_a_thread_of_an_author_does_not(
    tmp_path: Path, socket: str
) -> None:
    async with plugin(tmp_path, socket, GRACE="0") as process, StandInHost(address=socket) as host:
        reader = await _begin(host, "thread")
        process.signal(signal.SIGTERM)
        assert (await reader).failed is not None
        assert await process.exit_code() == 1
        assert process.cleaned


@pytest.mark.parametrize("descriptors", [True, False], ids=["pidfd", "polling"])
async def test_a_process_ends_with_the_one_that_started_it(
    tmp_path: Path, socket: str, descriptors: bool
) -> None:
    # A shell starts the plugin and dies; the plugin must notice, and clean up.
    code = (
        f"import runpy, os, sys; sys.argv = [{str(_PROGRAM)!r}, {socket!r}];"
        f"{'' if descriptors else 'del os.pidfd_open;'}"
        f"runpy.run_path({str(_PROGRAM)!r}, run_name='__main__')"
    )
    shell = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        '"$0" -c "$1" >/dev/null & echo $!; wait',
        sys.executable,
        code,
        env={"MARKS": str(tmp_path), "PATH": os.environ["PATH"], "RUNMESH_SUPERVISED": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert shell.stdout is not None
    process = int(await shell.stdout.readline())
    async with StandInHost(address=socket) as host:
        reader = await _begin(host, "wait")
        shell.kill()
        await shell.communicate()
        with contextlib.suppress(aio.AioRpcError):
            await reader
        async with asyncio.timeout(5):
            while _is_alive(process):  # noqa: ASYNC110 - nobody can wait for another's child
                await asyncio.sleep(0.02)
    assert (tmp_path / "cleaned").exists()


async def test_standard_services_are_served() -> None:
    async with serving(idle) as host:
        # The types that these packages have know no asynchronous channels.
        channel: Any = host.channel
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "runmesh.v1.RunService", "runmesh.v1.DiscoveryService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        listed = await reflection.ServerReflectionInfo(iter([request])).read()
        names = {service.name for service in listed.list_services_response.service}
        channelz = channelz_pb2_grpc.ChannelzStub(channel)
        servers = await channelz.GetServers(channelz_pb2.GetServersRequest())

    assert {"runmesh.v1.RunService", "runmesh.v1.DiscoveryService"} < names
    assert {"grpc.health.v1.Health", "grpc.channelz.v1.Channelz"} < names
    assert servers.server


async def test_a_host_may_ping_a_quiet_connection_as_often_as_it_likes() -> None:
    def frame(kind: int, payload: bytes = b"") -> bytes:
        return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + payload

    ping, goaway, settings = 6, 7, 4
    async with serving(idle) as host:
        name, _, port = (host._address or "").rpartition(":")
        reader, writer = await asyncio.open_connection(name, int(port))
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings))
        for _ in range(10):
            writer.write(frame(ping, bytes(8)))
            kind = -1
            while kind != ping:
                head = await asyncio.wait_for(reader.readexactly(9), 5)
                await reader.readexactly(int.from_bytes(head[:3], "big"))
                kind = head[3]
                assert kind != goaway, "the connection was ended for its pings"
        writer.close()
        await writer.wait_closed()


async def test_a_handshake_picks_a_version_and_names_the_instance() -> None:
    async with serving(idle) as host:
        stub = discovery_pb2_grpc.DiscoveryServiceStub(host.channel)

        async def shake(*versions: str) -> discovery_pb2.HandshakeResponse:
            request = discovery_pb2.HandshakeRequest(protocol_versions=versions)
            return await stub.Handshake(request)

        newer, none, again = await shake("9", "1"), await shake("9"), await shake("1")
        listed = await stub.ListRunners(discovery_pb2.ListRunnersRequest())

    assert (newer.protocol_version, none.protocol_version) == ("1", "")
    assert newer.sdk_name == "runmesh-sdk"
    assert newer.instance_id == again.instance_id
    assert [runner.id for runner in listed.runners] == ["plugin:acme/test/default"]


async def test_each_start_is_another_instance() -> None:
    ids = set()
    for _ in range(2):
        async with serving(idle) as host:
            ids.add(host.handshake.instance_id)

    assert len(ids) == 2


@pytest.mark.parametrize("address", ["0.0.0.0:7000", "[::]:7000", "example.org:7000", ":7000"])
def test_what_others_can_reach_is_refused_without_tls(address: str) -> None:
    with pytest.raises(ServeError, match="can be reached from other machines, and there is no TLS"):
        listen_address(address, tls=False)
    assert listen_address(address, tls=True) == address


def test_a_socket_path_that_is_too_long_is_named_with_its_length_and_the_limit() -> None:
    path = f"/{'x' * 120}"
    with pytest.raises(ServeError, match=f"'{path}' has 121 bytes; the limit is 10[37]"):
        listen_address(f"unix:{path}", tls=False)


def test_a_relative_socket_path_is_refused() -> None:
    with pytest.raises(ServeError, match=r"'x\.sock' must be absolute"):
        listen_address("unix:x.sock", tls=False)


def test_the_hosts_choice_of_an_address_is_named_when_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RUNMESH_LISTEN", "0.0.0.0:7000")
    with pytest.raises(ServeError, match="RUNMESH_LISTEN: '0"):
        listen_address(None, tls=False)


async def test_an_address_in_use_is_an_error_that_names_it() -> None:
    async with serving(idle) as host:
        address = host._address
        assert address is not None
        second = RunnerServer([idle], manifest=Manifest.minimal("acme/test"), listen=address)
        with pytest.raises(ServeError, match=f"cannot listen on {address}"):
            await second.start()


def test_what_cannot_be_served_ends_the_process_with_one_line() -> None:
    with pytest.raises(SystemExit, match="cannot serve: there is no runner to serve"):
        serve()


def test_a_runner_that_the_manifest_does_not_list_is_an_error() -> None:
    @agent_runner(name="second")
    async def second(ctx: RunContext) -> None:
        """Does nothing."""

    with pytest.raises(ManifestError, match="no AgentRunner named 'second'; there are default"):
        RunnerServer([second], manifest=Manifest.minimal("acme/test"))


def test_two_runners_of_one_name_are_an_error() -> None:
    with pytest.raises(ServeError, match="two runners are named 'default'"):
        RunnerServer([idle, idle], manifest=Manifest.minimal("acme/test"))


def test_a_class_is_no_runner() -> None:
    class Idle(AgentRunner):
        async def run(self, ctx: RunContext) -> None:
            """Does nothing."""

    with pytest.raises(ServeError, match="is no runner: serve an object of a class"):
        RunnerServer([Idle], manifest=Manifest.minimal("acme/test"))  # type: ignore[list-item]


def test_a_runner_in_the_manifest_that_is_not_served_is_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    RunnerServer([idle], manifest=Manifest.minimal("acme/test", "default", "forgotten"))

    assert "lists the runner forgotten, which is not served" in caplog.text


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that signs itself."""
    folder = tmp_path_factory.mktemp("certificates")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(folder / "runner.key"), "-out", str(folder / "runner.pem")),
        ],
        check=True,
        capture_output=True,
    )
    return folder


async def test_with_tls_only_callers_with_a_certificate_are_let_in(
    tmp_path: Path, certificates: Path
) -> None:
    trusted = (certificates / "runner.pem").read_bytes()
    key = (certificates / "runner.key").read_bytes()
    async with plugin(tmp_path, "0.0.0.0:0", CERTIFICATES=str(certificates)) as process:
        address = f"localhost:{process.address.rpartition(':')[2]}"
        known = grpc.ssl_channel_credentials(trusted, key, trusted)
        async with aio.secure_channel(address, known) as channel:
            stub = discovery_pb2_grpc.DiscoveryServiceStub(channel)
            request = discovery_pb2.HandshakeRequest(protocol_versions=["1"])
            assert (await stub.Handshake(request)).plugin_id == "acme/test"
        unknown = grpc.ssl_channel_credentials(trusted)
        for channel in (aio.secure_channel(address, unknown), aio.insecure_channel(address)):
            async with channel:
                stub = discovery_pb2_grpc.DiscoveryServiceStub(channel)
                with pytest.raises(aio.AioRpcError):
                    await stub.Handshake(request, timeout=2)


async def _begin(host: StandInHost, text: str) -> asyncio.Task[RunOutcome]:
    """Starts a run, and returns a task that reads it when its first result is there."""
    call = host.start(text)
    await anext(call)
    return asyncio.create_task(call.outcome())


def _mode(socket: str) -> int:
    return stat.S_IMODE(Path(socket.removeprefix("unix:")).stat().st_mode)


def _exists(socket: str) -> bool:
    return Path(socket.removeprefix("unix:")).exists()


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
