"""Tests of `host_service.listening`: where the host may listen, and that nobody else does."""

import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from host_service.errors import StartupError
from host_service.listening import (
    SocketClaim,
    bind_grpc,
    bind_http,
    bind_socket,
    probe_grpc,
    refuse_open,
    split_address,
)
from host_service.registry.channel import SERVER_OPTIONS


@pytest.fixture
async def server() -> AsyncIterator[grpc.aio.Server]:
    """Gives a server with the host's own options."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    yield server
    await server.stop(None)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:50051", "127.0.0.1", 50051),
        ("localhost:0", "localhost", 0),
        ("[::1]:8080", "::1", 8080),
        ("0.0.0.0:65535", "0.0.0.0", 65535),
        ("host.example.org:1", "host.example.org", 1),
    ],
)
def test_address_is_split_into_host_and_port(address: str, host: str, port: int) -> None:
    assert split_address(address, "--grpc") == (host, port)


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":50051",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:port",
        "127.0.0.1:-1",
        "127.0.0.1:65536",
        "127.0.0.1:٣",
        "127.0.0.1: 1",
        "::1",
        "::1:50051",
        "[::1",
        "[::1]",
        "::1]:1",
        "[::1:50051",
        "[]:1",
    ],
)
def test_address_of_another_form_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(StartupError, match=r"--grpc .* is not HOST:PORT.*127\.0\.0\.1:50051"):
        split_address(address, "--grpc")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_alone_may_be_listened_to_without_encryption(host: str) -> None:
    refuse_open(host, insecure=False, option="--grpc")


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "::",
        "192.168.1.7",
        "10.0.0.1",
        "fe80::1",
        "2001:db8::1",
        "example.org",
        "localhost.example.org",
        "::ffff:192.168.1.7",
        "128.0.0.1",
    ],
)
def test_host_that_others_reach_is_refused_unless_that_is_wanted(host: str) -> None:
    with pytest.raises(StartupError, match=f"--http {host} can be reached by others.*--insecure"):
        refuse_open(host, insecure=False, option="--http")
    refuse_open(host, insecure=True, option="--http")


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0", "localhost:0"])
async def test_port_zero_becomes_the_port_that_was_found(
    server: grpc.aio.Server, address: str
) -> None:
    bound, claim = bind_grpc(server, address, insecure=False)
    assert claim is None
    host, port = split_address(bound, "--grpc")
    assert port > 0
    assert bound == f"{address.removesuffix(':0')}:{port}"
    assert host in address


async def test_port_in_use_is_refused_with_what_to_do(server: grpc.aio.Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartupError, match=f"{address} cannot be listened on.*--grpc"):
            bind_grpc(server, address, insecure=False)
        with pytest.raises(StartupError, match=f"{address} cannot be listened on.*--http"):
            bind_http(address, insecure=False)


async def test_two_hosts_never_share_a_port(server: grpc.aio.Server) -> None:
    bound, _ = bind_grpc(server, "127.0.0.1:0", insecure=False)
    other = grpc.aio.server(options=SERVER_OPTIONS)
    with pytest.raises(StartupError):
        bind_grpc(other, bound, insecure=False)
    await other.stop(None)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
async def test_open_address_is_not_bound(server: grpc.aio.Server, address: str) -> None:
    with pytest.raises(StartupError, match="can be reached by others"):
        bind_grpc(server, address, insecure=False)
    with pytest.raises(StartupError, match="can be reached by others"):
        bind_http(address, insecure=False)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0"])
def test_http_listens_and_tells_where(address: str) -> None:
    listener, bound = bind_http(address, insecure=False)
    with listener:
        host, port = split_address(bound, "--http")
        assert listener.getsockname()[:2] == (host, port)
        socket.create_connection((host, port), 1).close()


async def test_probing_finds_what_binding_would_and_takes_nothing(
    server: grpc.aio.Server, tmp_path: Path
) -> None:
    for address in ("127.0.0.1:0", "[::1]:0", f"unix:{tmp_path}/host.sock"):
        probe_grpc(address, insecure=False)
        bound, claim = bind_grpc(server, address, insecure=False)
        await server.start()
        with pytest.raises(StartupError):
            probe_grpc(bound, insecure=False)
        if claim is not None:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(bound.removeprefix("unix:"))
            claim.release()
    for address in ("0.0.0.0:0", "nonsense", "unix:"):
        with pytest.raises(StartupError):
            probe_grpc(address, insecure=False)


async def test_unix_socket_is_the_owners_alone(server: grpc.aio.Server, tmp_path: Path) -> None:
    path = tmp_path / "host.sock"
    bound, claim = bind_grpc(server, f"unix:{path}", insecure=False)
    assert claim is not None
    assert bound == f"unix:{path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    claim.release()
    assert not path.exists()
    own = tmp_path / "own.sock"
    assert bind_socket(server, own) == f"unix:{own}"
    assert stat.S_IMODE(own.stat().st_mode) == 0o600


async def test_socket_of_a_living_host_is_not_taken(
    server: grpc.aio.Server, tmp_path: Path
) -> None:
    path = tmp_path / "host.sock"
    _, claim = bind_grpc(server, f"unix:{path}", insecure=False)
    await server.start()
    other = grpc.aio.server(options=SERVER_OPTIONS)
    with pytest.raises(StartupError, match=f"another process listens on unix:{path}"):
        bind_grpc(other, f"unix:{path}", insecure=False)
    await other.stop(None)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(path))
    assert claim is not None
    claim.release()


def test_socket_is_not_taken_from_somebody_who_knows_nothing_of_claims(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sock"
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(path))
        theirs.listen()
        with pytest.raises(StartupError, match="another process listens"):
            SocketClaim(path)
        assert path.exists()
    # They are gone, and left the file.
    SocketClaim(path).release()
    assert not path.exists()


def test_claim_can_be_taken_again_once_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "host.sock"
    first = SocketClaim(path)
    with pytest.raises(StartupError):
        SocketClaim(path)
    first.release()
    SocketClaim(path).release()


def test_claim_of_a_process_that_died_is_free(tmp_path: Path) -> None:
    path = tmp_path / "host.sock"
    os.close(SocketClaim(path)._lock)
    SocketClaim(path).release()


@pytest.mark.parametrize("name", ["missing/host.sock", "x" * 120])
async def test_socket_that_cannot_be_made_is_told_by_path_and_reason(
    server: grpc.aio.Server, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    with pytest.raises(StartupError) as raised:
        bind_grpc(server, f"unix:{path}", insecure=False)
    assert str(path) in raised.value.message
    assert "--grpc" in raised.value.advice
    if len(name) > 100:
        assert f"{len(str(path))} bytes" in raised.value.message
        assert "107" in raised.value.message
    else:
        assert "No such file" in raised.value.message


@pytest.mark.parametrize("name", ["", "host.sock"])
async def test_socket_at_a_folder_or_a_relative_path_is_refused(
    server: grpc.aio.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartupError, match="--grpc"):
        bind_grpc(server, f"unix:{name or tmp_path}", insecure=False)
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - no coroutine may block, says another rule


async def test_unix_without_a_path_is_refused(server: grpc.aio.Server) -> None:
    with pytest.raises(StartupError, match="the path of --grpc unix: has 0 bytes"):
        bind_grpc(server, "unix:", insecure=False)
