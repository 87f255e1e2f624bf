"""TLS and mutual TLS on every leg: callers, the command line, runners on other machines, and back.

One host listens on all addresses and asks each client for a certificate; a runner that somebody
else runs does the same, and reaches the host over TCP. Both are real processes, with certificates
of an authority that `runmesh certs` made.
"""

import asyncio
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from host_service.certificates.authority import Authority
from tests.acceptance.commands import CommandLine
from tests.acceptance.grpcurl import Grpcurl
from tests.integration.host.calls import Caller, collect, collect_until, message
from tests.integration.host.host_process import HostProcess
from tests.integration.host.waiting import eventually

# A host and a runner are started for these tests; building grpcurl, once, takes minutes.
pytestmark = pytest.mark.timeout(180)
_building = pytest.mark.timeout(600)

COUNTING = Path(__file__).parents[1] / "integration" / "host" / "runners" / "counting.py"
CONFIG = """\
agents:
- id: counting
  runner_id: plugin:acme/counting/default
- id: attached
  runner_id: plugin:acme/attached/default
"""


@dataclass(frozen=True, slots=True)
class Mesh:
    """A host and a runner, each with mutual TLS.

    Attributes:
        host: The host.
        authority: Who signed all certificates.
        address: Where the host is reached.
        runner_address: Where the runner is.
    """

    host: HostProcess
    authority: Authority
    address: str
    runner_address: str

    def path(self, name: str) -> str:
        """The path of a file of the authority."""
        return str(self.authority.folder / name)

    def grpcurl_options(self, *, client: str = "ops") -> list[str]:
        """What grpcurl trusts and shows."""
        shown = ["-cert", self.path(f"{client}.pem"), "-key", self.path(f"{client}.key")]
        return ["-cacert", self.path("ca.pem"), *(shown if client else [])]

    def options(self, *, client: str = "ops") -> list[str]:
        """What the command line trusts and shows."""
        shown = ["--cert", self.path(f"{client}.pem"), "--key", self.path(f"{client}.key")]
        return ["--address", self.address, "--ca", self.path("ca.pem"), *(shown if client else [])]

    def caller(self) -> Caller:
        """Somebody who calls with a certificate and a key, on a connection of its own."""
        folder = self.authority.folder
        credentials = grpc.ssl_channel_credentials(
            (folder / "ca.pem").read_bytes(),
            (folder / "ops.key").read_bytes(),
            (folder / "ops.pem").read_bytes(),
        )
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
        return Caller(grpc.aio.secure_channel(self.address, credentials, options), self.host.key)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _runner(folder: Path, plugin: str, **variables: str) -> Iterator[Path]:
    """The runner, as somebody else would run it; gives its log."""
    environment = os.environ | {
        "PLUGIN": plugin,
        "RUNMESH_TLS_CERT": str(folder / "runner.pem"),
        "RUNMESH_TLS_KEY": str(folder / "runner.key"),
        "RUNMESH_TLS_CLIENT_CA": str(folder / "ca.pem"),
        "RUNMESH_TLS_HOST_CA": str(folder / "ca.pem"),
        **variables,
    }
    path = folder / f"{plugin.rpartition('/')[2]}.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(COUNTING)], env=environment, stdout=log, stderr=log
        )
    try:
        yield path
    finally:
        process.terminate()
        process.wait(20)


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "ops.pem", folder / "ops.key")
    return context


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    data = tmp_path_factory.mktemp("tls") / "data"
    certs = data / "certs"
    command_line = CommandLine(data)
    for words in (["init"], ["issue", "host"], ["issue", "runner"], ["issue", "--client", "ops"]):
        made = command_line("certs", *words)
        assert made.status == 0, made.err
    address, runner_address = f"localhost:{_free_port()}", f"localhost:{_free_port()}"
    host = HostProcess(
        data,
        config=CONFIG,
        tls=_context(certs),
        arguments=[
            *("--grpc", address.replace("localhost", "0.0.0.0"), "--http", "0.0.0.0:0"),
            *("--tls-cert", str(certs / "host.pem"), "--tls-key", str(certs / "host.key")),
            *("--tls-client-ca", str(certs / "ca.pem"), "--advertise", address),
            *("--runner", f"acme/counting={runner_address}", "--runner-ca", str(certs / "ca.pem")),
        ],
    )
    listen = runner_address.replace("localhost", "0.0.0.0")
    with _runner(certs, "acme/counting", RUNMESH_LISTEN=listen), host:
        yield Mesh(host, Authority.open(certs), address, runner_address)


async def _shown(address: str) -> ssl.SSLObject | Any:
    """The serial number of the certificate that is shown to new connections."""
    host, _, port = address.rpartition(":")
    pem = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)), timeout=5)
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def _serial(path: Path) -> int:
    from host_service.certificates.identity import load_certificates

    return load_certificates(path)[0].serial_number


@_building
def test_grpcurl_looks_in_with_the_authority_and_a_certificate(
    mesh: Mesh, grpcurl: Grpcurl
) -> None:
    options = mesh.grpcurl_options()
    assert "runmesh.v1.GatewayService" in grpcurl(mesh.address, "list", tls=options)
    listed = grpcurl(
        mesh.address,
        "runmesh.v1.DiscoveryService/ListRunners",
        key=mesh.host.key,
        tls=options,
    )
    assert "plugin:acme/counting/default" in listed


@_building
@pytest.mark.parametrize("options", [["-plaintext"], ["-insecure"], []])
def test_who_shows_no_certificate_is_not_let_in(
    mesh: Mesh, grpcurl: Grpcurl, options: list[str]
) -> None:
    with pytest.raises(AssertionError, match=r"Failed to|error reading|certificate"):
        grpcurl(mesh.address, "list", tls=[*options, "-connect-timeout", "1"])


async def test_a_certificate_alone_is_no_key(mesh: Mesh) -> None:
    async with mesh.caller().channel as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await Caller(channel, "rmk_none").list()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_http_has_tls_as_well(mesh: Mesh) -> None:
    assert mesh.host.get("/healthz") == (200, {"status": "ok"})
    port = int(mesh.host.addresses["http"].rpartition(":")[2])
    nobody = ssl.create_default_context(cafile=mesh.path("ca.pem"))
    with (
        socket.create_connection(("localhost", port)) as connection,
        nobody.wrap_socket(connection, server_hostname="localhost") as secured,
    ):
        assert _answer(secured, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n") == b""


def _answer(connection: ssl.SSLSocket, request: bytes) -> bytes:
    """The first bytes of the answer; none from a server that hangs up, politely or not."""
    try:
        connection.sendall(request)
        return connection.recv(64)
    except OSError:
        return b""


async def test_a_runner_elsewhere_calls_the_host_over_tls(mesh: Mesh) -> None:
    async with mesh.caller().channel as channel:
        caller = Caller(channel, mesh.host.key)
        texts = [
            (await caller.dispatch(message(conversation_id="c"), "counting")).text for _ in range(2)
        ]
    assert texts == [f"1 at {mesh.address}", f"2 at {mesh.address}"]


async def test_a_runner_attaches_over_tls(mesh: Mesh) -> None:
    made = await asyncio.to_thread(
        CommandLine(mesh.host.data).process, "runners", "token", "acme/attached"
    )
    assert made.status == 0, made.err
    with _runner(
        mesh.authority.folder,
        "acme/attached",
        RUNMESH_ATTACH=mesh.address,
        RUNMESH_ATTACH_TOKEN=made.out.strip(),
    ):
        async with mesh.caller().channel as channel:
            caller = Caller(channel, mesh.host.key)

            async def answer() -> str:
                return (await caller.dispatch(message(conversation_id="a"), "attached")).text

            async def answers() -> bool:
                return (await answer()).endswith(f" at {mesh.address}")

            await eventually(answers)


async def test_who_attaches_without_a_certificate_is_not_let_in(mesh: Mesh) -> None:
    with _runner(
        mesh.authority.folder,
        "acme/stranger",
        RUNMESH_ATTACH=mesh.address,
        RUNMESH_ATTACH_TOKEN="rma_none",
        RUNMESH_TLS_CERT="",
        RUNMESH_TLS_KEY="",
        RUNMESH_TLS_CLIENT_CA="",
    ) as log:
        await eventually(lambda: "UNAVAILABLE" in log.read_text())


def test_every_command_reaches_the_host_from_elsewhere(mesh: Mesh, tmp_path: Path) -> None:
    elsewhere = CommandLine(tmp_path / "elsewhere")
    key = {"RUNMESH_API_KEY": mesh.host.key}
    asked = elsewhere("chat", "hello", "--agent", "counting", *mesh.options(), environment=key)
    assert asked.status == 0, asked.err
    assert f"at {mesh.address}" in asked.out
    runs = elsewhere("runs", "list", "--json", *mesh.options(), environment=key)
    (run, *_) = runs.json()
    for words in (
        ["runs", "show", run["run_id"]],
        ["runs", "watch", run["run_id"]],
        ["runs", "explain", run["run_id"]],
        ["runners", "list"],
        ["agents", "list"],
        ["bindings", "list"],
        ["models", "list"],
        ["tools", "list"],
        ["kb", "list"],
        ["policies", "list"],
        ["keys", "list"],
        ["actions", "list"],
    ):
        ran = elsewhere(*words, *mesh.options(), environment=key)
        assert ran.status == 0, (words, ran.err)


def test_a_run_is_replayed_on_a_runner_elsewhere(mesh: Mesh, tmp_path: Path) -> None:
    command_line = CommandLine(mesh.host.data)
    asked = command_line("chat", "again", "--agent", "counting")
    assert asked.status == 0, asked.err
    (run,) = command_line("runs", "list", "--agent", "counting", "--limit", "1", "--json").json()
    # By a name that is not of loopback, where there would be no TLS.
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, 0)
    except OSError:
        pytest.skip(f"this machine does not know its own name, {name}")
    away = f"{name}:{mesh.runner_address.rpartition(':')[2]}"
    ran = command_line("runs", "replay", run["run_id"], "--runner", away)
    assert f"at {mesh.address}" in ran.out, ran.err


def test_what_tls_needs_may_come_from_the_environment(mesh: Mesh, tmp_path: Path) -> None:
    environment = {
        "RUNMESH_API_KEY": mesh.host.key,
        "RUNMESH_ADDRESS": f"https://{mesh.address}",
        "RUNMESH_CA": mesh.path("ca.pem"),
        "RUNMESH_CERT": mesh.path("ops.pem"),
        "RUNMESH_CERT_KEY": mesh.path("ops.key"),
    }
    ran = CommandLine(tmp_path)("agents", "list", environment=environment)
    assert ran.status == 0, ran.err
    assert "counting" in ran.out


def test_the_data_folder_says_enough_to_reach_its_host(mesh: Mesh) -> None:
    assert "counting" in CommandLine(mesh.host.data)("agents", "list").out


def test_the_data_folder_says_enough_without_the_socket_too(mesh: Mesh, tmp_path: Path) -> None:
    # As in a container that shares the folder and has its own /tmp.
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("certs", "operator.key"):
        (folder / name).symlink_to(mesh.host.data / name)
    told = (mesh.host.data / "host.json").read_text()
    (folder / "host.json").write_text(told.replace("unix:/", "unix:/nowhere/"))
    ran = CommandLine(folder)("agents", "list")
    assert ran.status == 0, ran.err
    assert "counting" in ran.out
    # And what is wrong, where it says too little.
    (folder / "certs").unlink()
    told = CommandLine(folder)("agents", "list").error_line()
    assert "is not signed by an authority that this machine trusts" in told


def _line(mesh: Mesh, tmp_path: Path, *options: str, address: str = "") -> str:
    words = ["runs", "list", "--address", address or mesh.address, *options]
    ran = CommandLine(tmp_path)(*words, environment={"RUNMESH_API_KEY": mesh.host.key})
    assert ran.status == 1
    return ran.error_line()


def test_why_tls_failed_is_told_in_words(mesh: Mesh, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other")
    stranger = other.issue("ops", for_clients_only=True)
    expired = mesh.authority.issue(
        "old", for_clients_only=True, days=1, now=datetime.now(UTC) - timedelta(days=3)
    )
    ca = ["--ca", mesh.path("ca.pem")]
    ops = ["--cert", mesh.path("ops.pem"), "--key", mesh.path("ops.key")]
    assert "speaks TLS: give --ca FILE" in _line(mesh, tmp_path)
    assert "asks for a client certificate: give --cert and --key" in _line(mesh, tmp_path, *ca)
    told = _line(mesh, tmp_path, "--ca", str(other.certificate_file), *ops)
    assert f"is not signed by an authority in {other.certificate_file}" in told
    told = _line(mesh, tmp_path, "--ca", "system", *ops)
    assert "is not signed by an authority that this machine trusts" in told
    pair = ["--cert", str(stranger.certificate), "--key", str(stranger.key)]
    assert f"does not take the certificate {stranger.certificate}" in _line(
        mesh, tmp_path, *ca, *pair
    )
    pair = ["--cert", str(expired.certificate), "--key", str(expired.key)]
    assert f"{expired.certificate} expired on" in _line(mesh, tmp_path, *ca, *pair)
    port = mesh.address.rpartition(":")[2]
    told = _line(mesh, tmp_path, *ca, *ops, address=f"127.0.0.2:{port}")
    assert "is not for 127.0.0.2" in told
    nowhere = f"localhost:{_free_port()}"
    assert "no host answers" in _line(mesh, tmp_path, *ca, *ops, address=nowhere)


def test_tls_where_there_is_none_is_told(
    mesh: Mesh, plain_host: HostProcess, tmp_path: Path
) -> None:
    address = plain_host.addresses["grpc"]
    assert "speaks no TLS" in _line(mesh, tmp_path, "--ca", mesh.path("ca.pem"), address=address)


def test_an_expired_host_is_told_of(tmp_path: Path, mesh: Mesh) -> None:
    # No host starts with such a certificate; one may outlive its own.
    old = mesh.authority.issue(
        "expired", hosts=["localhost"], days=1, now=datetime.now(UTC) - timedelta(days=3)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(old.certificate, old.key)
    context.set_alpn_protocols(["h2"])
    with _accepting(context) as address:
        told = _line(mesh, tmp_path, "--ca", mesh.path("ca.pem"), address=address)
    assert told.startswith(f"the certificate of the host at {address} has expired: ")


@contextmanager
def _accepting(context: ssl.SSLContext) -> Iterator[str]:
    """A server that shakes hands and says nothing."""
    import threading

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)

        def accept() -> None:
            while not ended.is_set():
                try:
                    connection, _ = listener.accept()
                    connection.settimeout(5)
                    context.wrap_socket(connection, server_side=True).close()
                except OSError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"localhost:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


async def test_a_new_certificate_is_shown_while_streams_go_on(mesh: Mesh, tmp_path: Path) -> None:
    """The host's certificate is what it shows to callers, and to the runner."""
    told = tmp_path / "told"
    certificate = mesh.authority.folder / "host.pem"
    before = _serial(certificate)
    assert await _shown(mesh.address) == before
    async with mesh.caller().channel as channel:
        caller = Caller(channel, mesh.host.key)
        call = caller.open(message(f"until {told}", conversation_id="rotation"), "counting")
        answer = await collect_until(call, lambda answer: answer.shown.startswith("..."))
        assert CommandLine(mesh.host.data)("certs", "issue", "host", "--days", "30").status == 0
        after = _serial(certificate)
        assert after != before

        async def renewed() -> bool:
            return await _shown(mesh.address) == after

        await eventually(renewed)
        http = f"localhost:{mesh.host.addresses['http'].rpartition(':')[2]}"
        assert await _shown(http) == after
        async with mesh.caller().channel as another:
            # The runner is dialled anew with it: nothing keeps a run from it meanwhile.
            text = (
                await Caller(another, mesh.host.key).dispatch(
                    message(conversation_id="new"), "counting"
                )
            ).text
            assert text.endswith(f"at {mesh.address}"), text
        seen = len(answer.shown)
        await collect_until(call, lambda answer: len(answer.shown) > seen + 20, answer)
        told.touch()
        await collect(call, answer)
    assert answer.failure == ""
    assert answer.text.strip(".") == f"1 at {mesh.address}"
    assert "the certificates for it changed" in mesh.host.log()


async def test_a_runners_new_certificate_is_shown_without_a_restart(mesh: Mesh) -> None:
    assert CommandLine(mesh.host.data)("certs", "issue", "runner").status == 0
    after = _serial(mesh.authority.folder / "runner.pem")

    async def renewed() -> bool:
        return await _shown(mesh.runner_address) == after

    await eventually(renewed)


async def test_a_broken_certificate_leaves_the_old_one_and_is_told(mesh: Mesh) -> None:
    certificate = mesh.authority.folder / "host.pem"
    good, shown = certificate.read_bytes(), await _shown(mesh.address)
    certificate.write_text("broken")
    try:
        said = "the certificates of the listeners cannot be used, and the old ones stay"
        await eventually(lambda: said in mesh.host.log())
        assert await _shown(mesh.address) == shown
        looked = await asyncio.to_thread(CommandLine(mesh.host.data).process, "doctor")
        assert looked.status == 1
        assert "the host goes on with what it read before" in looked.out
    finally:
        certificate.write_bytes(good)

    async def mended() -> bool:
        looked = await asyncio.to_thread(CommandLine(mesh.host.data).process, "doctor")
        return looked.status == 0

    await eventually(mended)
    assert mesh.host.log().count(said) == 1


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ("nowhere.pem host.key", "nowhere.pem cannot be read (No such file or directory)"),
        ("host.pem runner.key", "runner.key is not that of the certificate"),
        ("old.pem old.key", "old.pem expired on"),
        ("ops.pem ops.key", "ops.pem is for clients only"),
        ("host.pem open.key", "open.key may be read or written by others (mode 0644)"),
    ],
)
def test_a_host_says_why_it_does_not_start(
    mesh: Mesh, tmp_path: Path, spoil: str, told: str
) -> None:
    mesh.authority.issue(
        "old", hosts=["localhost"], days=1, now=datetime.now(UTC) - timedelta(days=3)
    )
    (mesh.authority.folder / "open.key").write_bytes(Path(mesh.path("host.key")).read_bytes())
    (mesh.authority.folder / "open.key").chmod(0o644)
    certificate, key = map(mesh.path, spoil.split())
    command_line = CommandLine(tmp_path / "data")
    ran = command_line.process("up", "--tls-cert", certificate, "--tls-key", key)
    assert ran.status == 1
    assert told in ran.error_line()


def test_tls_needs_certificate_and_key(alone: CommandLine) -> None:
    ran = alone("up", "--tls-cert", "x")
    assert (ran.status, "--tls-cert and --tls-key go together" in ran.err) == (2, True)


def test_a_runner_that_cannot_be_dialled_so_keeps_the_host_from_starting(
    tmp_path: Path,
) -> None:
    command_line = CommandLine(tmp_path / "data")
    runner = "acme/x=runner.example:7443"
    ran = command_line.process("up", "--grpc", "127.0.0.1:0", "--http", "off", "--runner", runner)
    assert "without TLS only unix sockets and loopback" in ran.error_line()
    runner += "?ca=/nowhere"
    ran = command_line.process("up", "--grpc", "127.0.0.1:0", "--http", "off", "--runner", runner)
    assert "the authority /nowhere cannot be read" in ran.error_line()


def test_tls_for_development_needs_no_other_option(tmp_path: Path) -> None:
    data = tmp_path / "data"
    certs = data / "certs"
    ready = CommandLine(data)
    # Made before, so that the test knows whom to trust when it asks whether the host is ready.
    assert ready("certs", "init").status == 0
    trusted = ssl.create_default_context(cafile=str(certs / "ca.pem"))
    with HostProcess(data, arguments=["--dev-tls", "--grpc", "0.0.0.0:0"], tls=trusted) as host:
        port = host.addresses["grpc"].rpartition(":")[2]
        options = ["--address", f"localhost:{port}", "--ca", str(certs / "ca.pem")]
        ran = CommandLine(tmp_path)(
            "runners", "list", *options, environment={"RUNMESH_API_KEY": host.key}
        )
        assert ran.status == 0, ran.err
        assert "runmesh/echo" in ran.out
        looked = ready("doctor")
        assert "host.pem is good until" in looked.out
