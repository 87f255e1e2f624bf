"""Tests of what listeners show and ask for, on real connections, when files change under them."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from host_service.certificates.authority import Authority
from host_service.certificates.files import ListenFiles
from host_service.certificates.identity import load_certificates
from host_service.certificates.serving import ServerCertificates
from host_service.console.http import HttpServer
from host_service.listening import bind_grpc, bind_http


@pytest.fixture
def clients(tmp_path: Path) -> Authority:
    """Who signs the certificates of clients."""
    return Authority.create(tmp_path / "clients")


@pytest.fixture
def certificates(authority: Authority, clients: Authority) -> ServerCertificates:
    issued = authority.issue("host", hosts=["127.0.0.1"])
    return ServerCertificates(
        ListenFiles(
            certificate=issued.certificate, key=issued.key, client_ca=clients.certificate_file
        )
    )


@asynccontextmanager
async def _grpc(certificates: ServerCertificates) -> AsyncIterator[str]:
    server = aio.server()
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    address, _ = bind_grpc(server, "127.0.0.1:0", insecure=False, certificates=certificates)
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)


@asynccontextmanager
async def _http(certificates: ServerCertificates) -> AsyncIterator[str]:
    async def ready() -> dict[str, str]:
        return {}

    listener, address = bind_http("127.0.0.1:0", insecure=False)
    server = HttpServer(listener=listener, readiness=ready, context=certificates.ssl_context())
    server.start()
    try:
        yield address
    finally:
        await server.stop()


async def _calls(address: str, authority: Authority, signer: Authority) -> bool:
    """Whether a client whose certificate an authority signed is let in, by gRPC."""
    shown = signer.issue("client", for_clients_only=True)
    credentials = grpc.ssl_channel_credentials(
        authority.certificate_file.read_bytes(),
        shown.key.read_bytes(),
        shown.certificate.read_bytes(),
    )
    async with aio.secure_channel(
        address, credentials, options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        try:
            await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=2
            )
        except aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return False
            raise
    return True


async def _gets(address: str, authority: Authority, signer: Authority) -> bool:
    """The same by HTTP."""
    shown = signer.issue("client", for_clients_only=True)
    context = ssl.create_default_context(cafile=str(authority.certificate_file))
    context.load_cert_chain(shown.certificate, shown.key)
    host, _, port = address.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
    except OSError:
        return False
    return b"200 OK" in answer


async def _shown(address: str) -> x509.Certificate:
    host, _, port = address.rpartition(":")
    pem = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)), timeout=5)
    return x509.load_pem_x509_certificate(pem.encode())


async def test_each_listener_shows_the_newest_certificate(
    certificates: ServerCertificates, authority: Authority
) -> None:
    path = certificates.files.certificate
    async with _grpc(certificates) as rpc, _http(certificates) as http:
        before = load_certificates(path)[0]
        assert (await _shown(rpc), await _shown(http)) == (before, before)
        authority.issue("host", hosts=["127.0.0.1", "renewed.example"])
        # Not before it was looked at: what is half written is nobody's to see.
        assert (await _shown(rpc), await _shown(http)) == (before, before)
        assert certificates.watched.look()
        after = load_certificates(path)[0]
        assert after != before
        assert (await _shown(rpc), await _shown(http)) == (after, after)


async def test_each_listener_asks_for_certificates_of_the_newest_authority(
    certificates: ServerCertificates, authority: Authority, clients: Authority, tmp_path: Path
) -> None:
    others = Authority.create(tmp_path / "others")
    async with _grpc(certificates) as rpc, _http(certificates) as http:
        for is_let_in, address in ((_calls, rpc), (_gets, http)):
            assert await is_let_in(address, authority, clients)
            assert not await is_let_in(address, authority, others)
        clients.certificate_file.write_bytes(others.certificate_file.read_bytes())
        assert certificates.watched.look()
        for is_let_in, address in ((_calls, rpc), (_gets, http)):
            assert not await is_let_in(address, authority, clients)
            assert await is_let_in(address, authority, others)


async def test_an_expired_certificate_of_a_client_is_not_taken(
    certificates: ServerCertificates, authority: Authority, clients: Authority
) -> None:
    old = clients.issue(
        "client", for_clients_only=True, days=1, now=datetime.now(UTC) - timedelta(days=3)
    )
    credentials = grpc.ssl_channel_credentials(
        authority.certificate_file.read_bytes(), old.key.read_bytes(), old.certificate.read_bytes()
    )
    async with (
        _grpc(certificates) as address,
        aio.secure_channel(address, credentials) as channel,
    ):
        with pytest.raises(aio.AioRpcError):
            await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=2
            )


async def test_an_address_that_others_reach_may_be_listened_on_with_tls(
    certificates: ServerCertificates,
) -> None:
    server = aio.server()
    address, claim = bind_grpc(server, "0.0.0.0:0", insecure=False, certificates=certificates)
    assert claim is None
    assert address.startswith("0.0.0.0:")
    await server.stop(None)
