"""The tool servers of this host, as the catalogue has them: each kept, none in another's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from host_service.catalogue.shelf import Shelf
from host_service.catalogue.tool import Tool, Toolset
from host_service.catalogue.tool_server import ToolServer
from host_service.limits import Limits
from host_service.tools.errors import ServerFailed, ToolError, ToolUnknown
from host_service.tools.keeper import ServerKeeper, State, Status
from host_service.tools.listing import Listing
from host_service.tools.plan import Plan
from host_service.tools.remembered import RememberedListings
from stores.errors import SecretUnreadable, StoreError
from stores.secrets import SecretOwner, Secrets

if TYPE_CHECKING:
    from host_service.tools.session import Answer

_log = logging.getLogger("runmesh.tools")

_AGAIN_SECONDS = 1.0


class ToolServers:
    """Keeps tool servers, and calls their tools.

    Args:
        secrets: Where values of their variables and headers are.
        folder: Where their programs have their folders.
        limits: How much is too much.
        clock: Tells the time.
    """

    def __init__(
        self, *, secrets: Secrets, folder: Path, limits: Limits, clock: Callable[[], datetime]
    ) -> None:
        self._secrets = secrets
        self._folder = folder
        self._limits = limits
        self._clock = clock
        self._keepers: dict[str, ServerKeeper] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._toolset = Toolset()
        self._remembered = RememberedListings(folder, limits=limits)
        # What servers offered that are not kept yet.
        self._recalled: dict[str, Listing] = {}
        self._learned = asyncio.Event()

    @property
    def toolset(self) -> Toolset:
        """What they offer now; another object whenever that changes."""
        return self._toolset

    def statuses(self) -> Mapping[str, Status]:
        """Returns how it is with each that may be used, by id."""
        return {server_id: keeper.status() for server_id, keeper in self._keepers.items()}

    async def recall(self, servers: Iterable[ToolServer]) -> None:
        """Offers what these offered before the host was started, until they are learned."""
        self._recalled = await self._remembered.recall(each for each in servers if each.enabled)
        self._gather()

    async def learn(self, servers: Iterable[ToolServer]) -> None:
        """Has these from now on: one that is reached as before is left alone.

        Raises:
            StoreError: Their secrets cannot be read.
        """
        plans = {each.id: await self._plan(each) for each in servers if each.enabled}
        for server_id in self._keepers.keys() - plans.keys():
            _ = self._ending_of(self._keepers.pop(server_id))
            await self._remembered.forget(server_id)
        for server_id, plan in plans.items():
            keeper = self._keepers.get(server_id)
            if keeper is None or keeper.plan != plan:
                self._keepers[server_id] = self._replaced(keeper, plan)
            else:
                # Its revision may be another.
                keeper.plan = plan
        self._recalled.clear()
        self._gather()
        self._learned.set()

    def _replaced(self, before: ServerKeeper | None, plan: Plan) -> ServerKeeper:
        ending = self._ending_of(before) if before is not None else None
        offered = self._recalled.get(plan.server.id)
        if before is not None:
            offered = _still_offered(before, plan.server)
        return ServerKeeper(
            plan,
            folder=self._folder,
            limits=self._limits,
            clock=self._clock,
            on_listing=self._gather,
            remembered=self._remembered,
            listing=offered,
            before=ending,
        )

    async def _plan(self, server: ToolServer) -> Plan:
        owner, values = SecretOwner(server.KIND, server.id), {}
        for name in server.secret_names():
            try:
                secret = await self._secrets.get(owner, name)
            except SecretUnreadable:
                return Plan(
                    server=server, trouble=f"the value of {name} cannot be read: set it anew"
                )
            if secret is None:
                return Plan(server=server, trouble=f"the value of {name} is not stored: set it")
            values[name] = secret.reveal()
        return Plan(server=server, secrets=values)

    async def call(self, tool: Tool, arguments: dict[str, Any]) -> Answer:
        """Calls a tool.

        Raises:
            ToolError: As `ServerKeeper.call`; its text has no secret of the server.
        """
        if tool.server_id in self._recalled:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.tool_server_wait_seconds):
                    await self._learned.wait()
        keeper = self._keepers.get(tool.server_id)
        if keeper is None:
            raise ServerFailed("it is not among those that may be used any more")
        status = keeper.status()
        if status.state is State.READY and not any(each.name == tool.name for each in status.tools):
            raise ToolUnknown("the tool server does not offer it any more")
        try:
            return await keeper.call(tool.own_name, arguments)
        except ToolError as error:
            error.args = (keeper.plan.blot_out(str(error)), *error.args[1:])
            raise

    def _ending_of(self, keeper: ServerKeeper) -> asyncio.Task[None]:
        task = asyncio.create_task(keeper.stop())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    def _gather(self) -> None:
        self._toolset = Toolset(
            MappingProxyType(
                {
                    **{server_id: each.tools for server_id, each in self._recalled.items()},
                    **{
                        server_id: keeper.listing.tools
                        for server_id, keeper in self._keepers.items()
                        if keeper.listing is not None
                    },
                }
            )
        )

    async def close(self) -> None:
        """Ends all of them."""
        for keeper in self._keepers.values():
            _ = self._ending_of(keeper)
        self._keepers.clear()
        if self._ending:
            await asyncio.wait(set(self._ending))


def _still_offered(before: ServerKeeper, server: ToolServer) -> Listing | None:
    """Returns what a server was known to offer, as far as it may be used now."""
    was, listing = before.plan.server, before.listing
    if listing is None or (was.command, was.args, was.url) != (
        server.command,
        server.args,
        server.url,
    ):
        return None
    return Listing(tuple(each for each in listing.tools if server.offers(each.name)))


async def keep_tool_servers(
    *, servers: ToolServers, shelf: Callable[[], Shelf], changed: asyncio.Event
) -> None:
    """Has the tool servers follow the catalogue, until cancelled.

    Args:
        servers: They.
        shelf: Gives what the catalogue holds.
        changed: Set when that may have changed.
    """
    while True:
        try:
            await servers.learn(shelf().tool_servers.values())
        except StoreError as error:
            _log.warning("secrets of tool servers could not be read: %s", error)
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        await changed.wait()
        changed.clear()
