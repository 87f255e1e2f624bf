"""Runners that are dialled with TLS: whom the host trusts, what it shows, and when that changes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from host_service.certificates.authority import Authority, Issued
from host_service.certificates.files import DialDefaults
from host_service.registry import AddressInvalid, InstanceState, StaticRunners
from host_service.registry.names import DnsName
from runner_sdk import Manifest, RunContext, Tls, agent_runner
from runner_sdk._server import RunnerServer
from tests.integration.plugins.mesh import Mesh

MakeMesh = Callable[..., Mesh]


@agent_runner
async def idle(ctx: RunContext) -> None:
    """Does nothing."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "certs")


@asynccontextmanager
async def _runner(
    authority: Authority, *hosts: str, client_ca: Path | None = None
) -> AsyncIterator[str]:
    """Serves `acme/desk`; gives its port."""
    issued = authority.issue("runner", hosts=hosts or ("127.0.0.1",))
    server = RunnerServer(
        [idle],
        manifest=Manifest.minimal("acme/desk"),
        listen="127.0.0.1:0",
        tls=Tls(issued.certificate, issued.key, client_ca=client_ca),
    )
    address = await server.start()
    try:
        yield address.rpartition(":")[2]
    finally:
        await server.drain(0)


@asynccontextmanager
async def _dialling(mesh: Mesh, address: str, tls: DialDefaults) -> AsyncIterator[None]:
    static = StaticRunners(registry=mesh.registry, tls=tls, resolve=_resolve)
    try:
        static.add("acme/desk", address)
        yield
    finally:
        await static.close()


async def _resolve(name: DnsName) -> frozenset[str]:
    return frozenset({f"127.0.0.1:{name.port}"})


def _defaults(authority: Authority, shown: Issued | None = None) -> DialDefaults:
    return DialDefaults(
        ca=authority.certificate_file,
        certificate=shown.certificate if shown else None,
        key=shown.key if shown else None,
    )


async def test_a_runner_that_the_authority_signed_is_served(
    make_mesh: MakeMesh, authority: Authority
) -> None:
    mesh = make_mesh()
    async with (
        _runner(authority) as port,
        _dialling(mesh, f"127.0.0.1:{port}", _defaults(authority)),
    ):
        await mesh.until("desk", InstanceState.SERVING)


async def test_a_runner_that_asks_for_a_certificate_is_shown_one(
    make_mesh: MakeMesh, authority: Authority
) -> None:
    mesh = make_mesh()
    shown = authority.issue("host", for_clients_only=True)
    async with _runner(authority, client_ca=authority.certificate_file) as port:
        async with _dialling(mesh, f"127.0.0.1:{port}", _defaults(authority, shown)):
            await mesh.until("desk", InstanceState.SERVING)
        async with _dialling(mesh, f"127.0.0.1:{port}", _defaults(authority)):
            refused = await mesh.until("desk", lambda each: bool(each.reason))
            assert "UNAVAILABLE" in refused.reason


async def test_a_runner_of_another_authority_is_listed_with_the_reason(
    make_mesh: MakeMesh, authority: Authority, tmp_path: Path
) -> None:
    mesh = make_mesh()
    other = Authority.create(tmp_path / "other")
    async with (
        _runner(other) as port,
        _dialling(mesh, f"127.0.0.1:{port}", _defaults(authority)),
    ):
        listed = await mesh.until("desk", lambda each: "CERTIFICATE" in each.reason)
        assert listed.state is not InstanceState.SERVING


async def test_a_runner_that_cannot_be_trusted_yet_is_served_once_its_authority_is_there(
    make_mesh: MakeMesh, authority: Authority, tmp_path: Path
) -> None:
    mesh = make_mesh()
    other = Authority.create(tmp_path / "other")
    async with (
        _runner(other) as port,
        _dialling(mesh, f"127.0.0.1:{port}", _defaults(authority)),
    ):
        await mesh.until("desk", lambda each: "CERTIFICATE" in each.reason)
        with authority.certificate_file.open("ab") as file:
            file.write(other.certificate_file.read_bytes())
        await mesh.until("desk", InstanceState.SERVING)


async def test_the_name_of_a_certificate_may_differ_from_what_is_dialled(
    make_mesh: MakeMesh, authority: Authority
) -> None:
    mesh = make_mesh()
    async with _runner(authority, "desk.example") as port:
        place = f"127.0.0.1:{port}"
        async with _dialling(mesh, place, _defaults(authority)):
            await mesh.until("desk", lambda each: bool(each.reason))
        async with _dialling(mesh, f"{place}?name=desk.example", _defaults(authority)):
            await mesh.until("desk", InstanceState.SERVING)


async def test_replicas_have_certificates_for_their_name(
    make_mesh: MakeMesh, authority: Authority
) -> None:
    mesh = make_mesh()
    async with (
        _runner(authority, "runners.example") as port,
        _dialling(mesh, f"dns:///runners.example:{port}", _defaults(authority)),
    ):
        await mesh.until("desk", InstanceState.SERVING)


async def test_an_address_can_say_what_the_defaults_do_not(
    make_mesh: MakeMesh, authority: Authority
) -> None:
    mesh = make_mesh()
    async with _runner(authority) as port:
        address = f"127.0.0.1:{port}?ca={authority.certificate_file}"
        async with _dialling(mesh, address, DialDefaults()):
            await mesh.until("desk", InstanceState.SERVING)
        # Without TLS nobody answers there.
        async with _dialling(mesh, f"127.0.0.1:{port}?tls=off", _defaults(authority)):
            listed = await mesh.until("desk", lambda each: bool(each.reason))
            assert listed.state is not InstanceState.SERVING


async def test_other_machines_are_dialled_with_tls_alone(
    make_mesh: MakeMesh, authority: Authority
) -> None:
    mesh = make_mesh()
    static = StaticRunners(registry=mesh.registry, tls=_defaults(authority))
    static.add("acme/desk", "192.0.2.7:7443")
    with pytest.raises(AddressInvalid, match="without TLS only unix sockets"):
        static.add("acme/desk", "192.0.2.7:7443?tls=off")
    with pytest.raises(AddressInvalid, match=r"gone\.pem cannot be read"):
        static.add("acme/desk", "192.0.2.7:7443?ca=/gone.pem")
    await static.close()
