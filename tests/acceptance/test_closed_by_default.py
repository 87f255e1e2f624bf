"""A host that nobody told anything: who can reach it, and what it leaves readable."""

import ipaddress
import os
import stat
import struct
from collections.abc import Awaitable
from pathlib import Path

from runmesh.v1 import gateway_pb2

from host_service.settings import DEFAULT_GRPC_ADDRESS, DEFAULT_HTTP_ADDRESS, Settings
from tests.integration.host.calls import calling, message
from tests.integration.host.host_process import HostProcess
from tests.integration.host.processes import descendants, tcp_listeners, unix_listeners
from tests.integration.host.refusals import refused


def processes_of(host: HostProcess) -> list[int]:
    return [host.pid, *(each.pid for each in descendants(host.pid))]


async def test_it_listens_on_loopback_and_private_sockets_only(plain_host: HostProcess) -> None:
    async with calling(plain_host.addresses["grpc"], plain_host.key) as caller:
        await caller.dispatch(message())
    addresses = [each for pid in processes_of(plain_host) for each in tcp_listeners(pid)]
    ports = {int(each.rpartition(":")[2], 16) for each in addresses}
    told = {int(plain_host.addresses[name].rpartition(":")[2]) for name in ("grpc", "http")}
    assert ports == told
    for address in addresses:
        ip = _ip(address.rpartition(":")[0])
        # gRPC listens on IPv4 through a socket of IPv6.
        assert (getattr(ip, "ipv4_mapped", None) or ip).is_loopback
    paths = [each for pid in processes_of(plain_host) for each in unix_listeners(pid)]
    # The host's own, and that of the plugin that ships with it.
    assert len(paths) >= 2
    assert plain_host.addresses["socket"].removeprefix("unix:") in paths
    for path in map(Path, paths):
        assert path.is_absolute(), "an abstract socket has no permissions"
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.parent.stat().st_uid == os.getuid()


def test_own_socket_is_its_owners_alone(plain_host: HostProcess) -> None:
    own = Path(plain_host.addresses["socket"].removeprefix("unix:"))
    assert stat.S_IMODE(own.stat().st_mode) == 0o600


def _ip(hexadecimal: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Reads an address as /proc/net has it: words of four bytes, each in the machine's order."""
    words = [int(hexadecimal[at : at + 8], 16) for at in range(0, len(hexadecimal), 8)]
    return ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words))


def test_default_addresses_are_loopback() -> None:
    for address in (DEFAULT_GRPC_ADDRESS, DEFAULT_HTTP_ADDRESS):
        assert ipaddress.ip_address(address.rpartition(":")[0]).is_loopback
    settings = Settings(data_folder=Path("unused"))
    assert settings.grpc_address == DEFAULT_GRPC_ADDRESS
    assert settings.http_address == DEFAULT_HTTP_ADDRESS
    assert not settings.insecure


async def test_who_has_no_key_is_refused_by_every_way_in(plain_host: HostProcess) -> None:
    before = await newest_run(plain_host)
    for address in (plain_host.addresses["grpc"], plain_host.addresses["socket"]):
        async with calling(address, "") as stranger:
            no_key = ()
            request = gateway_pb2.DispatchRequest(event=message())
            calls: list[Awaitable[object]] = [
                stranger.gateway.Dispatch(request, metadata=no_key).read(),
                stranger.gateway.ListRuns(gateway_pb2.ListRunsRequest(), metadata=no_key),
                stranger.dispatch(message()),
            ]
            for call in calls:
                refusal = await refused(call)
                assert refusal.code == refusal.reason == "UNAUTHENTICATED"
    assert await newest_run(plain_host) == before


async def newest_run(host: HostProcess) -> str:
    """Return the id of the run that began last; empty without any."""
    async with calling(host.addresses["grpc"], host.key) as caller:
        return next((run.run_id for run in (await caller.list(page_size=1)).runs), "")


def test_files_of_the_data_folder_are_private(plain_host: HostProcess) -> None:
    assert stat.S_IMODE(plain_host.data.stat().st_mode) == 0o700
    files = [path for path in plain_host.data.rglob("*") if path.is_file()]
    assert {"operator.key", "host.json", "runmesh.db", "host.lock"} <= {each.name for each in files}
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    for path in plain_host.data.rglob("*"):
        if path.is_dir():
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_no_secret_is_in_the_log_or_in_the_process_list(plain_host: HostProcess) -> None:
    assert plain_host.key not in plain_host.log()
    for process in (*descendants(plain_host.pid),):
        assert plain_host.key not in process.command
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert plain_host.key.encode() not in environment


def test_address_that_others_can_reach_is_refused_without_a_word(tmp_path: Path) -> None:
    hosts = [
        (option, HostProcess(tmp_path / f"{option}{number}", arguments=[option, address]))
        for option in ("--grpc", "--http")
        for number, address in enumerate(("0.0.0.0:0", "[::]:0"))
    ]
    for _, host in hosts:
        host.launch()
    for option, host in hosts:
        try:
            assert host.wait() != 0
        finally:
            host.close()
        (line,) = host.log().splitlines()
        assert line.startswith(f"runmesh: {option} ")
        assert "--insecure" in line
        assert not (host.data / "host.json").exists()
