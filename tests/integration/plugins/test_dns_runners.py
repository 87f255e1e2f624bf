"""Runners behind a name that has many addresses."""

import asyncio
import os
import socket
import subprocess
from collections.abc import Callable, Iterator

import pytest
from runmesh.v1 import context_pb2, run_pb2

from host_service.registry import AddressInvalid, Instance, InstanceState, StaticRunners
from host_service.registry.names import DnsName, look_up, parse_dns_name
from tests.integration.plugins.mesh import Mesh, bare
from tests.integration.plugins.processes import eventually

MakeMesh = Callable[..., Mesh]
Run = Callable[..., "subprocess.Popen[bytes]"]

REQUEST = run_pb2.RunRequest(context=context_pb2.RunContext(run_id="r"))
RUNNER = "plugin:acme/desk/default"


class Names:
    """What a name has for addresses, as a test says."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = set(addresses)
        self.broken = False
        self.asked = 0

    async def resolve(self, name: DnsName) -> frozenset[str]:
        self.asked += 1
        if self.broken or not self.addresses:
            raise socket.gaierror(socket.EAI_AGAIN, "the server of names is away")
        return frozenset(f"{address}:{name.port}" for address in self.addresses)


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def run(port: int) -> Iterator[Run]:
    """Runs a replica at an address of this machine."""
    started: list[subprocess.Popen[bytes]] = []

    def start(address: str, *wrongs: str) -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            "RUNMESH_LISTEN": f"{address}:{port}",
            "RUNMESH_PLUGIN_ID": "acme/desk",
        }
        started.append(subprocess.Popen(bare(*wrongs), env=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def follow(mesh: Mesh, names: Names, port: int, *, look_seconds: float = 0.2) -> StaticRunners:
    runners = StaticRunners(
        registry=mesh.registry, insecure=True, resolve=names.resolve, look_seconds=look_seconds
    )
    runners.add("acme/desk", f"dns:///runners.prod:{port}")
    return runners


def serving(mesh: Mesh) -> list[Instance]:
    return [each for each in mesh.registry.instances() if each.takes_runs]


async def test_each_address_of_a_name_is_an_instance_and_they_share_the_runs(
    make_mesh: MakeMesh, run: Run, port: int
) -> None:
    run("127.0.0.1"), run("127.0.0.2")
    mesh, names = make_mesh(), Names("127.0.0.1", "127.0.0.2")
    runners = follow(mesh, names, port)
    await eventually(lambda: len(serving(mesh)) == 2)
    one, two = serving(mesh)
    assert {one.address, two.address} == {f"127.0.0.1:{port}", f"127.0.0.2:{port}"}
    assert (one.found_by, two.found_by) == ("dns", "dns")
    assert one.instance_id != two.instance_id
    one.acquire()
    assert mesh.registry.pick(RUNNER) is two
    one.release()
    await runners.close()
    assert mesh.registry.instances() == ()


async def test_addresses_that_come_and_go_are_noticed_and_runs_end_where_they_are(
    make_mesh: MakeMesh, run: Run, port: int
) -> None:
    run("127.0.0.1", "run_seconds=2"), run("127.0.0.2")
    mesh, names = make_mesh(), Names("127.0.0.1")
    runners = follow(mesh, names, port)
    await eventually(lambda: len(serving(mesh)) == 1)
    (one,) = serving(mesh)
    one.acquire()
    stream = one.open_run(REQUEST, timeout_seconds=None, metadata=())
    assert await stream.read()

    names.addresses = {"127.0.0.2"}
    await eventually(lambda: [each.address for each in serving(mesh)] == [f"127.0.0.2:{port}"])
    assert one.state is InstanceState.DRAINING
    assert one.reason == "its address is no longer one of its name's"
    assert await asyncio.wait_for(stream.read(), 10) is None
    one.release()
    await eventually(lambda: one not in mesh.registry.instances())
    await runners.close()


async def test_lost_replica_disturbs_no_other_and_has_its_name_looked_up_at_once(
    make_mesh: MakeMesh, run: Run, port: int
) -> None:
    process = run("127.0.0.1")
    run("127.0.0.2"), run("127.0.0.3")
    mesh, names = make_mesh(), Names("127.0.0.1", "127.0.0.2")
    runners = follow(mesh, names, port, look_seconds=60)
    await eventually(lambda: len(serving(mesh)) == 2)
    other = next(each for each in serving(mesh) if each.address.startswith("127.0.0.2"))
    names.addresses = {"127.0.0.2", "127.0.0.3"}
    process.kill()
    await eventually(
        lambda: (
            {each.address for each in serving(mesh)} == {f"127.0.0.2:{port}", f"127.0.0.3:{port}"}
        )
    )
    assert other in serving(mesh)
    await runners.close()


async def test_name_without_an_address_is_listed_with_why_until_it_has_one(
    make_mesh: MakeMesh, run: Run, port: int
) -> None:
    mesh, names = make_mesh(), Names()
    runners = follow(mesh, names, port)
    absent = await mesh.until("desk", InstanceState.UNHEALTHY)
    assert absent.address == f"dns:///runners.prod:{port}"
    assert absent.reason == "its name could not be looked up: the server of names is away"
    run("127.0.0.2")
    names.addresses = {"127.0.0.2"}
    await eventually(lambda: len(serving(mesh)) == 1)
    assert absent not in mesh.registry.instances()

    names.broken = True
    asked = names.asked
    await eventually(lambda: names.asked > asked + 1)
    assert len(serving(mesh)) == 1
    await runners.close()


async def test_names_are_looked_up_as_the_machine_does() -> None:
    assert "127.0.0.1:7443" in await look_up(parse_dns_name("dns:///localhost:7443"))
    assert await look_up(DnsName("127.0.0.9", 1)) == frozenset({"127.0.0.9:1"})
    with pytest.raises(OSError, match=r"not known|failure|No address"):
        await look_up(DnsName("nowhere.invalid", 1))


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("dns:///runners.prod", "is not dns:///name:port"),
        ("dns:///runners.prod:99999", "is not dns:///name:port"),
        ("dns://10.0.0.1/runners.prod:7443", "write dns:///runners.prod:7443"),
        ("dns:///runners.prod:7443", "without TLS only unix sockets and loopback"),
    ],
)
async def test_name_that_cannot_or_must_not_be_dialled_is_refused(
    make_mesh: MakeMesh, address: str, told: str
) -> None:
    with pytest.raises(AddressInvalid, match=told):
        make_mesh().static.add("acme/desk", address)
