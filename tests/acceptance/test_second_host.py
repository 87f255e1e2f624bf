"""A second host where one runs already: it refuses to start, and the first stays reachable."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.host.calls import calling, message
from tests.integration.host.host_process import HostProcess
from tests.integration.host.processes import descendants


async def check_reachable(host: HostProcess) -> None:
    for address in (host.addresses["grpc"], host.addresses["socket"]):
        async with calling(address, host.key) as caller:
            assert (await caller.dispatch(message("still here"))).text == "still here"
    assert host.get("/readyz")[0] == 200
    assert (host.data / "host.json").exists()


def refuses(second: HostProcess) -> str:
    """Launches a host that must not start; returns what it says, which is one line."""
    second.launch()
    try:
        code = second.wait()
    finally:
        second.close()
    lines = second.log().splitlines()
    assert code not in {0, None}
    assert len(lines) == 1, second.log()
    assert lines[0].startswith("runmesh: ")
    return lines[0]


Second = Callable[[HostProcess, Path], HostProcess]

# What the second host has in common with the first, and what it must name.
WAYS: dict[str, tuple[Second, str]] = {
    "data folder": (
        lambda first, _: HostProcess(first.data),
        "--data",
    ),
    "port": (
        lambda first, folder: HostProcess(
            folder / "data", arguments=["--grpc", first.addresses["grpc"]]
        ),
        "--grpc",
    ),
    "http port": (
        lambda first, folder: HostProcess(
            folder / "data", arguments=["--http", first.addresses["http"]]
        ),
        "--http",
    ),
}


@pytest.mark.parametrize("way", WAYS)
async def test_second_host_refuses_to_start_and_leaves_the_first_alone(
    plain_host: HostProcess, tmp_path: Path, way: str
) -> None:
    make, option = WAYS[way]
    before = descendants(plain_host.pid)
    # The log of the first goes on; what the second says follows it.
    told_before = len(plain_host.log().splitlines())
    second = make(plain_host, tmp_path)
    second.launch()
    try:
        assert second.wait() != 0
    finally:
        second.close()
    if way == "data folder":
        said = second.log().splitlines()[told_before:]
        said = [line for line in said if line.startswith("runmesh: ")]
        assert str(plain_host.pid) in said[0]
    else:
        said = second.log().splitlines()
        assert not (tmp_path / "data" / "host.json").exists()
    (line,) = said
    assert line.startswith("runmesh: ")
    assert option in line
    await check_reachable(plain_host)
    assert descendants(plain_host.pid) == before


async def test_socket_is_not_taken_from_a_live_host_and_is_from_a_dead_one(
    tmp_path: Path,
) -> None:
    arguments = ["--grpc", f"unix:{tmp_path}/host.sock"]
    with HostProcess(tmp_path / "data", arguments=arguments) as host:
        line = refuses(HostProcess(tmp_path / "other", arguments=arguments))
        assert host.addresses["grpc"] in line
        await check_reachable(host)
        host.kill()
        assert (tmp_path / "host.sock").exists()
        left = Path(host.addresses["socket"].removeprefix("unix:")).parent
        host.start()
        await check_reachable(host)
        # Its folder of sockets is removed by whoever starts next.
        assert not left.exists()


def test_socket_of_some_other_program_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        line = refuses(HostProcess(tmp_path / "data", arguments=["--grpc", f"unix:{path}"]))
        assert str(path) in line
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.connect(str(path))
