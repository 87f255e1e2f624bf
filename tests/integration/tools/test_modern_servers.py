"""Tool servers of the newest revision of the protocol, which knows no handshake."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from mcp_types.version import LATEST_MODERN_VERSION

from host_service.catalogue.tool_server import ToolServer
from host_service.limits import Limits
from host_service.tools.errors import CallTimedOut
from host_service.tools.keeper import Status
from tests.integration.tools.kept import SERVERS, Kept, eventually, keeping, lines


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    async with keeping(tmp_path / "tool-servers") as kept:
        yield kept


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "note"


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, note: Path) -> Iterator[ToolServer]:
    """The server over each transport."""
    command = [str(SERVERS / "modern.py"), str(note)]
    if request.param == "stdio":
        yield ToolServer(id="s", command=sys.executable, args=tuple(command))
        return
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    process = subprocess.Popen([sys.executable, *command, str(port)])
    try:
        yield ToolServer(id="s", url=f"http://127.0.0.1:{port}/mcp")
    finally:
        process.kill()
        process.wait()


def names(status: Status) -> set[str]:
    return {each.name for each in status.tools}


async def test_tools_are_listed_and_called_without_a_handshake(
    kept: Kept, server: ToolServer
) -> None:
    await kept.have(server)
    status = await kept.ready()
    assert status.protocol_version == LATEST_MODERN_VERSION
    assert status.server_name == "modern 3.2.1"
    assert names(status) == {"s__echo", "s__grow", "s__wait"}
    assert (await kept.call("echo", value=[1.0, 2**70])).structured_content == {
        "result": f"[1.0, {2**70}]"
    }


async def test_changes_are_asked_for_and_followed(
    kept: Kept, server: ToolServer, note: Path
) -> None:
    await kept.have(server)
    await kept.ready()
    await eventually(lambda: "listens" in lines(note))
    await kept.call("grow")
    await kept.until("s", lambda status: "s__grown" in names(status))
    assert not (await kept.call("grown")).is_error
    assert lines(note).count("listens") == 1


async def test_stream_of_changes_that_ends_is_asked_for_anew(
    server: ToolServer, note: Path, tmp_path: Path
) -> None:
    if not server.url:
        pytest.skip("over stdio it ends with the server alone")
    # Nothing is waited for longer than twice what a call may take.
    limits = Limits(tool_call_seconds=0.5)
    async with keeping(tmp_path / "tool-servers", limits=limits) as kept:
        await kept.have(server)
        await kept.ready()
        await eventually(lambda: lines(note).count("listens") == 2)
        with suppress(CallTimedOut):
            await kept.call("grow")
        await kept.until("s", lambda status: "s__grown" in names(status))


async def test_call_that_is_given_up_is_cancelled_there(
    kept: Kept, server: ToolServer, note: Path
) -> None:
    await kept.have(server)
    await kept.ready()
    call = asyncio.create_task(kept.call("wait", seconds=1000.0))
    await eventually(lambda: "waiting" in lines(note))
    call.cancel()
    await eventually(lambda: "cancelled" in lines(note))
    assert (await kept.call("echo", value=1)).structured_content == {"result": "1"}
