"""Tests of a runner's certificates: what is refused, what is read again, whom calls trust."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from runmesh.v1 import host_api_pb2

from host_service.certificates.authority import Authority
from runner_sdk import Manifest, RunContext, Tls, agent_runner, serve
from runner_sdk._server import RunnerServer
from runner_sdk._tls import Fresh
from runner_sdk._transport import Channels
from runner_sdk.errors import ServeError
from runner_sdk.testing import StandInHost


@agent_runner
async def idle(ctx: RunContext) -> None:
    """Does nothing."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "certs")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets files be looked at whenever somebody asks."""
    monkeypatch.setattr("runner_sdk._tls._LOOK_SECONDS", 0.0)


def _tls(authority: Authority, *hosts: str, mutual: bool = True) -> Tls:
    issued = authority.issue("runner", hosts=hosts or ("localhost", "127.0.0.1"))
    ca = authority.certificate_file
    return Tls(issued.certificate, issued.key, client_ca=ca if mutual else None, host_ca=ca)


@asynccontextmanager
async def _serving(tls: Tls | None, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    server = RunnerServer([idle], manifest=Manifest.minimal("acme/test"), listen=listen, tls=tls)
    address = await server.start()
    try:
        yield address
    finally:
        await server.drain(0)


async def _check(channel: aio.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)


def _shown(address: str) -> bytes:
    """The certificate that a server shows, in DER; as PEM it is compared without its chain."""
    host, _, port = address.rpartition(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port)), timeout=5))


def _der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_the_environment_names_the_files() -> None:
    assert Tls.from_environment({}) is None
    assert Tls.from_environment({"RUNMESH_TLS_HOST_CA": "system", "RUNMESH_TLS_KEY": ""}) == Tls(
        host_ca=Path("system")
    )
    assert Tls.from_environment(
        {
            "RUNMESH_TLS_CERT": "/c",
            "RUNMESH_TLS_KEY": "/k",
            "RUNMESH_TLS_CLIENT_CA": "/a",
            "RUNMESH_TLS_HOST_CA": "/b",
        }
    ) == Tls(Path("/c"), Path("/k"), client_ca=Path("/a"), host_ca=Path("/b"))


def test_who_only_trusts_a_host_cannot_listen_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNMESH_TLS_HOST_CA", "system")
    with pytest.raises(SystemExit, match="there is no TLS"):
        serve(idle, manifest=Manifest.minimal("acme/test"), listen="0.0.0.0:0")


def test_serve_takes_its_certificates_from_the_environment(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNMESH_TLS_CERT", str(authority.certificate_file))
    with pytest.raises(SystemExit, match="tls: certificate and key go together"):
        serve(idle, manifest=Manifest.minimal("acme/test"), listen="0.0.0.0:0")


async def test_a_runner_under_test_has_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNMESH_TLS_CERT", "/nowhere.pem")
    monkeypatch.setenv("RUNMESH_TLS_KEY", "/nowhere.key")
    async with StandInHost(idle, manifest=Manifest.minimal("acme/test")) as host:
        assert (await host.run("hi")).failed is None


async def test_a_server_listens_to_others_with_a_certificate(authority: Authority) -> None:
    async with _serving(_tls(authority, mutual=False), "0.0.0.0:0") as address:
        trusted = grpc.ssl_channel_credentials(authority.certificate_file.read_bytes())
        port = address.rpartition(":")[2]
        async with aio.secure_channel(f"localhost:{port}", trusted) as channel:
            await _check(channel)


async def test_a_socket_has_no_tls_whatever_is_given(authority: Authority, tmp_path: Path) -> None:
    async with _serving(_tls(authority), f"unix:{tmp_path}/runner.sock") as address:
        async with aio.insecure_channel(
            address, options=[("grpc.default_authority", "localhost")]
        ) as channel:
            await _check(channel)
        channels = Channels(_tls(authority).host_credentials())
        await _check(channels.to(address))
        await channels.close()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "runner.key").unlink(), r"tls\.key: .*cannot be read"),
        (lambda folder: (folder / "runner.pem").unlink(), r"tls\.certificate: .*cannot be read"),
        (lambda folder: (folder / "runner.key").chmod(0o644), "mode 0644.*chmod 600"),
        (lambda folder: (folder / "runner.pem").write_text("junk"), "no certificate and unencr"),
        (
            lambda folder: (folder / "runner.pem").write_bytes((folder / "ca.pem").read_bytes()),
            r"runner\.key is not the key of",
        ),
    ],
)
def test_files_that_cannot_be_used_are_named(
    authority: Authority, spoil: Callable[[Path], object], told: str
) -> None:
    tls = _tls(authority)
    spoil(authority.folder)
    with pytest.raises(ServeError, match=told):
        tls.server_credentials()
    with pytest.raises(ServeError, match=told):
        tls.host_credentials()


def test_a_certificate_without_its_key_is_no_pair(authority: Authority) -> None:
    tls = _tls(authority)
    with pytest.raises(ServeError, match="go together"):
        Tls(certificate=tls.certificate, host_ca=tls.host_ca).host_credentials()


@pytest.mark.usefixtures("impatient")
async def test_new_connections_see_the_new_certificate_and_old_ones_go_on(
    authority: Authority,
) -> None:
    tls = _tls(authority)
    assert tls.certificate is not None
    async with _serving(tls) as address:
        channels = Channels(tls.host_credentials())
        stub = health_pb2_grpc.HealthStub(channels.to(address))
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        before = _der(tls.certificate)
        assert await asyncio.to_thread(_shown, address) == before
        _tls(authority, "localhost", "127.0.0.1", "renewed.example")
        assert await asyncio.to_thread(_shown, address) == _der(tls.certificate) != before
        # The stream is there as before, and a new channel trusts what is there now.
        assert not watch.done()
        assert channels.to(address) is not None
        await _check(channels.to(address))
        assert not watch.done()
        await channels.close()


@pytest.mark.usefixtures("impatient")
async def test_a_broken_new_certificate_leaves_the_old_one_and_is_told_once(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    tls = _tls(authority)
    assert tls.certificate is not None
    before = _der(tls.certificate)
    async with _serving(tls) as address:
        tls.certificate.write_text("junk")
        for _ in range(3):
            assert await asyncio.to_thread(_shown, address) == before
    told = [each.getMessage() for each in caplog.records if "stays" in each.getMessage()]
    assert len(told) == 1
    assert "runner.pem" in told[0]


@pytest.mark.usefixtures("impatient")
async def test_channels_are_opened_anew_when_what_they_trust_changes(
    authority: Authority, tmp_path: Path
) -> None:
    tls = _tls(authority, mutual=False)
    method = host_api_pb2.DESCRIPTOR.services_by_name["HostAPIService"].methods_by_name["GetState"]
    channels = Channels(tls.host_credentials())
    first, call = channels.to("localhost:1"), channels.call("localhost:1", method)
    assert channels.to("localhost:1") is first
    assert channels.call("localhost:1", method) is call
    other = Authority.create(tmp_path / "other")
    authority.certificate_file.write_bytes(other.certificate_file.read_bytes())
    assert channels.call("localhost:1", method) is not call
    assert channels.to("localhost:1") is not first
    await channels.close()


async def test_files_are_looked_at_once_a_second_at_the_most(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a")
    fresh = Fresh([path], path.read_text)
    path.write_text("other")
    fresh.look()
    assert fresh.value == "a"


async def test_a_host_of_another_authority_is_not_called(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority.create(tmp_path / "other")
    async with _serving(_tls(authority, mutual=False)) as address:
        stranger = Channels(Tls(host_ca=other.certificate_file).host_credentials())
        with pytest.raises(aio.AioRpcError, match="CERTIFICATE_VERIFY_FAILED"):
            await _check(stranger.to(address))
        await stranger.close()
