"""Tools that are known before their server has answered, from the last time that it did."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from host_service.catalogue.tool_server import ToolServer
from host_service.limits import Limits
from host_service.tools.errors import ServerFailed
from tests.integration.tools.kept import Kept, eventually, keeping, raw


class Gate:
    """What the servers wait for; open at first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.open()

    def open(self) -> None:
        self.path.touch()

    def shut(self) -> None:
        self.path.unlink()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tool-servers"


def gated(gate: Gate, *tools: Any, **fields: Any) -> ToolServer:
    return raw({"gate": str(gate.path), "tools": [list(tools or ("one", "two"))]}, **fields)


@asynccontextmanager
async def restarted(folder: Path, *servers: ToolServer, **limits: Any) -> AsyncIterator[Kept]:
    async with keeping(folder, limits=Limits(**limits)) as kept:
        await kept.servers.recall(servers)
        yield kept


async def heard_once(folder: Path, *servers: ToolServer, **limits: Any) -> None:
    async with keeping(folder, limits=Limits(**limits)) as kept:
        await kept.have(*servers)
        for each in servers:
            await kept.ready(each.id)


async def test_tools_are_offered_at_once_and_a_call_waits_for_its_server(
    folder: Path, gate: Gate
) -> None:
    server = gated(gate)
    await heard_once(folder, server)
    gate.shut()
    # A call may wait for a first answer longer than for one that was lost.
    async with restarted(folder, server, tool_server_wait_seconds=0.05) as kept:
        offered = kept.servers.toolset.offered_by("s")
        assert offered is not None
        assert [each.name for each in offered] == ["s__one", "s__two"]
        await kept.have(server)
        assert kept.servers.toolset.get("s__two") is not None
        call = asyncio.create_task(kept.call("one"))
        done, _ = await asyncio.wait({call}, timeout=0.5)
        assert not done
        gate.open()
        assert not (await call).is_error


async def test_call_before_anything_is_learned_waits_too(folder: Path, gate: Gate) -> None:
    server = gated(gate)
    await heard_once(folder, server)
    async with restarted(folder, server) as kept:
        call = asyncio.create_task(kept.call("one"))
        await asyncio.sleep(0)
        await kept.have(server)
        assert not (await call).is_error


async def test_call_to_a_server_that_does_not_come_back_fails(folder: Path, gate: Gate) -> None:
    server = gated(gate)
    await heard_once(folder, server)
    gate.shut()
    async with restarted(
        folder, server, tool_server_wait_seconds=0.05, tool_server_start_seconds=0.3
    ) as kept:
        await kept.have(server)
        with pytest.raises(ServerFailed, match="did not tell its tools"):
            await kept.call("one")


async def test_another_way_to_a_server_and_what_may_not_be_used_are_not_remembered(
    folder: Path, gate: Gate
) -> None:
    await heard_once(folder, gated(gate))
    async with restarted(folder, gated(gate, enabled_tools=("two",))) as kept:
        offered = kept.servers.toolset.offered_by("s")
        assert [each.name for each in offered or ()] == ["s__two"]
    async with restarted(folder, gated(gate, "one", "two", "three")) as kept:
        assert kept.servers.toolset.offered_by("s") is None
    async with restarted(folder, gated(gate, enabled=False)) as kept:
        assert kept.servers.toolset.offered_by("s") is None


async def test_server_that_was_removed_is_forgotten(folder: Path, gate: Gate) -> None:
    server = gated(gate)
    async with keeping(folder) as kept:
        await kept.have(server)
        await kept.ready()
        await eventually((folder / "s" / "listing.json").exists)
        await kept.have()
    async with restarted(folder, server) as kept:
        assert kept.servers.toolset.offered_by("s") is None


async def test_what_is_too_much_or_damaged_is_not_remembered(folder: Path, gate: Gate) -> None:
    server = gated(gate)
    await heard_once(folder, server, tools_remembered_bytes=100)
    async with restarted(folder, server) as kept:
        assert kept.servers.toolset.offered_by("s") is None
    await heard_once(folder, server)
    kept_in = folder / "s" / "listing.json"
    assert kept_in.stat().st_mode & 0o777 == 0o600
    kept_in.write_text(kept_in.read_text()[:-20])
    async with restarted(folder, server) as kept:
        assert kept.servers.toolset.offered_by("s") is None
