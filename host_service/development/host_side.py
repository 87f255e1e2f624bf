"""What the host does for somebody who works on a plugin: lets it attach, lists it, has an agent."""

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

import grpc.aio
from google.protobuf.duration_pb2 import Duration
from runmesh.admin.v1 import admin_pb2, attach_tokens_pb2
from runmesh.admin.v1.admin_pb2_grpc import AdminServiceStub
from runmesh.v1 import discovery_pb2
from runmesh.v1.discovery_pb2_grpc import DiscoveryServiceStub

# A token is revoked at the end; one whose owner was killed stops working by itself.
_TOKEN_SECONDS = 8 * 3600
# From the second half of its life on, a new process gets a new one.
_USED_SECONDS = _TOKEN_SECONDS / 2
_CALL_SECONDS = 30.0
_PAGE_ITEMS = 100


class Connection(Protocol):
    """The services of a host, and the metadata with which an operator calls them."""

    admin: AdminServiceStub
    channel: grpc.aio.Channel
    discovery: DiscoveryServiceStub

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The API key, as a call's metadata."""


class HostSide:
    """The host's part in developing a plugin. Its calls raise `grpc.aio.AioRpcError`.

    Args:
        connection: With an operator's key.
        clock: Tells seconds, for the age of the token.

    Attributes:
        channel: To the host.
    """

    def __init__(
        self, connection: Connection, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.channel = connection.channel
        self._connection = connection
        self._clock = clock
        self._token: tuple[str, attach_tokens_pb2.CreateAttachTokenResponse] | None = None
        self._made_at = 0.0

    async def token(self, plugin_id: str) -> str:
        """A token with which the plugin may attach; the same for as long as it does well."""
        if self._token is not None:
            its_plugin, made = self._token
            if its_plugin == plugin_id and self._clock() - self._made_at < _USED_SECONDS:
                return made.secret
            await self.revoke()
        made = await self._connection.admin.CreateAttachToken(
            attach_tokens_pb2.CreateAttachTokenRequest(
                plugin_id=plugin_id, lifetime=Duration(seconds=_TOKEN_SECONDS)
            ),
            metadata=self._connection.metadata,
            timeout=_CALL_SECONDS,
        )
        self._token, self._made_at = (plugin_id, made), self._clock()
        return made.secret

    async def revoke(self) -> None:
        """Ends the token, if there is one, and with it what is still attached."""
        token, self._token = self._token, None
        if token is not None:
            await self._connection.admin.RevokeAttachToken(
                attach_tokens_pb2.RevokeAttachTokenRequest(token_id=token[1].token.token_id),
                metadata=self._connection.metadata,
                timeout=_CALL_SECONDS,
            )

    async def instances(self, plugin_id: str) -> Sequence[discovery_pb2.RunnerInstance]:
        """The development instances of a plugin that the host knows now."""
        mesh = await self._mesh()
        return [each for each in mesh.instances if each.plugin_id == plugin_id and each.development]

    async def faults(self, plugin_id: str) -> list[str]:
        """What the host finds wrong with the plugin's manifests, a text for each."""
        mesh = await self._mesh()
        return [
            f"{fault.runner_id or plugin_id}: {fault.field} {fault.rule}"
            for fault in mesh.faults
            if fault.plugin_id == plugin_id
        ]

    async def agents_for(self, runner_ids: Collection[str], *, name: str) -> dict[str, str]:
        """Sees to it that each runner has an agent to be asked by.

        Args:
            runner_ids: The runners.
            name: What an agent is called that has to be made; with a number where that is taken.

        Returns:
            The id of an agent by runner: one that was there already, else a new one.
        """
        agents = await self._agents()
        taken = {agent.id for agent in agents}
        chosen = {agent.runner_id: agent.id for agent in reversed(agents)}
        made = []
        for runner_id in sorted(runner_ids):
            if runner_id not in chosen:
                chosen[runner_id] = _free_id(name, runner_id, taken)
                taken.add(chosen[runner_id])
                made.append(admin_pb2.Agent(id=chosen[runner_id], runner_id=runner_id))
        if made:
            await self._connection.admin.Apply(
                admin_pb2.ApplyRequest(agents=made),
                metadata=self._connection.metadata,
                timeout=_CALL_SECONDS,
            )
        return {runner_id: chosen[runner_id] for runner_id in sorted(runner_ids)}

    async def _agents(self) -> list[admin_pb2.Agent]:
        agents: list[admin_pb2.Agent] = []
        page_token = ""
        while True:
            page = await self._connection.admin.ListAgents(
                admin_pb2.ListAgentsRequest(page_size=_PAGE_ITEMS, page_token=page_token),
                metadata=self._connection.metadata,
                timeout=_CALL_SECONDS,
            )
            agents.extend(page.agents)
            page_token = page.next_page_token
            if not page_token:
                return agents

    async def _mesh(self) -> discovery_pb2.ListRunnersResponse:
        answer: Awaitable[discovery_pb2.ListRunnersResponse]
        answer = self._connection.discovery.ListRunners(
            discovery_pb2.ListRunnersRequest(),
            metadata=self._connection.metadata,
            timeout=_CALL_SECONDS,
        )
        return await answer


def _free_id(name: str, runner_id: str, taken: Collection[str]) -> str:
    """The plugin's name for the runner `default`, with the runner's name for others."""
    runner = runner_id.rpartition("/")[2]
    wanted = name if runner == "default" else f"{name}-{runner}"
    number, free = 1, wanted
    while free in taken:
        number += 1
        free = f"{wanted}-{number}"
    return free
