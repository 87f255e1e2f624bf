"""Tool servers kept without a host."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from host_service.catalogue.tool_server import ToolServer
from host_service.limits import Limits
from host_service.tools.keeper import State, Status
from host_service.tools.servers import ToolServers
from stores.secrets import Secret, SecretOwner

SERVERS = Path(__file__).parent / "servers"
# A machine that runs much else beside may take long for what takes a second.
_PATIENCE_SECONDS = 60.0


class KnownSecrets:
    """As much of the secrets' store as tool servers read."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], str] = {}

    async def get(self, owner: SecretOwner, name: str) -> Secret | None:
        value = self.values.get((owner.id, name))
        return None if value is None else Secret(value)


class Kept:
    """Tool servers that are kept.

    Attributes:
        servers: They.
        secrets: Their secrets.
    """

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.secrets = KnownSecrets()
        self.servers = ToolServers(
            secrets=self.secrets,  # type: ignore[arg-type]  # as much of it as is read
            folder=folder,
            limits=limits,
            clock=lambda: datetime.now(UTC),
        )

    async def have(self, *servers: ToolServer) -> None:
        """Has these from now on."""
        await self.servers.learn(servers)

    async def until(self, server_id: str, holds: Callable[[Status], bool]) -> Status:
        """Returns how it is with a server as soon as something holds."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                status = self.servers.statuses()[server_id]
                if holds(status):
                    return status
                await asyncio.sleep(0.02)

    async def ready(self, server_id: str = "s") -> Status:
        """Returns how it is with a server once it is ready."""
        return await self.until(server_id, lambda status: status.state is State.READY)

    async def failed(self, server_id: str = "s") -> Status:
        """Returns how it is with a server once it has failed."""
        return await self.until(server_id, lambda status: bool(status.trouble))

    async def call(self, name: str, **arguments: Any) -> Any:
        """Calls a tool of the server `s`, or of another where the name has one."""
        full = name if "__" in name else f"s__{name}"
        tool = self.servers.toolset.get(full)
        assert tool is not None, f"nobody offers {full}"
        return await self.servers.call(tool, arguments)


@asynccontextmanager
async def keeping(folder: Path, *, limits: Limits | None = None) -> AsyncIterator[Kept]:
    """Keeps tool servers as long as the context lasts."""
    kept = Kept(folder, limits or Limits())
    try:
        yield kept
    finally:
        await kept.servers.close()


def stateful(note: Path, server_id: str = "s", **fields: Any) -> ToolServer:
    """Returns a server by the official library, over stdio."""
    args = (str(SERVERS / "stateful.py"), str(note))
    return ToolServer(id=server_id, command=sys.executable, args=args, **fields)


def raw(does: Mapping[str, Any], server_id: str = "s", **fields: Any) -> ToolServer:
    """Returns a server that does what is said."""
    args = ("-u", str(SERVERS / "raw.py"), json.dumps(does))
    return ToolServer(id=server_id, command=sys.executable, args=args, **fields)


def lines(note: Path) -> list[str]:
    """Returns what a server wrote down."""
    return note.read_text().splitlines() if note.exists() else []


async def eventually(holds: Callable[[], bool]) -> None:
    """Returns as soon as something holds."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            if holds():
                return
            await asyncio.sleep(0.02)
