"""A host for one test: the real one, in the test's process, with the test's runners beside it.

What is started, in this order, and taken down in the reverse: a folder, the runners on a private
unix socket, the host that dials them, a connection to the host, an agent for each runner.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runmesh.admin.v1 import admin_pb2, admin_pb2_grpc, attach_tokens_pb2
from runmesh.v1 import discovery_pb2, discovery_pb2_grpc, event_pb2, gateway_pb2, gateway_pb2_grpc
from runmesh.v1.result_pb2 import RunResult

from host_service.limits import Limits
from host_service.registry.channel import open_channel
from host_service.server import running_host
from host_service.settings import Settings
from host_service.supervisor.sockets import SocketFolder
from host_service.testing.outcome import Outcome
from runner_sdk import AgentRunner, Attach, Manifest
from runner_sdk.testing import RunnerServer, manifest_of
from stores import Stores

#: The agent of the first runner.
DEFAULT_AGENT = "default"

# Every event of a stable type reaches the first agent.
_EVENT_TYPES = ("message.*", "group.*", "friend.*", "schedule.*", "api.*")
_INSTANCE_POLL_SECONDS = 0.01
_INSTANCE_WAIT_SECONDS = 15.0
_REFUSED = frozenset(
    {discovery_pb2.INSTANCE_STATE_REFUSED, discovery_pb2.INSTANCE_STATE_INCOMPATIBLE}
)

Metadata = tuple[tuple[str, str], ...]


class RunnerNotServed(AssertionError):
    """The host does not take a runner; the text says why."""


class RealHost:
    """The real host, in a test. Use it with `async with`; several may run at once.

    The agent of the first runner is `default`, and has every event of a stable type; each further
    runner has an agent of its own name.

    Args:
        *runners: The runners to serve; none, for a test of the host alone.
        manifest: Their manifest, or its path. By default the `manifest.yaml` above their source;
            `Manifest.minimal` makes one without files.
        config: The configuration of every agent.
        agent: Anything else that an agent has: its fields are those of every agent.
        data_folder: The host's data folder, which stays when the test is over: a host that has it
            again is the same host. By default one that goes with the host.
        database_url: `sqlite:///path` or `postgresql+psycopg://...`, which stays when the test is
            over; several hosts may share one. By default a SQLite file in the data folder.
        configuration: The text of a configuration file, as `runmesh up --config` reads it, for
            what only the host itself has, such as webhooks.
        limits: Limits to have instead of the defaults, by name.
        max_concurrent_runs: As in `runner_sdk.serve`.
        attached: Whether the runners attach to the host, instead of being dialled by it.

    Attributes:
        address: Where the host listens, for whatever the methods here do not do.
        tcp_address: Where it listens on TCP, for what has a network between.
        gateway: The stub of its GatewayService; give its calls `metadata=host.metadata`.
        admin: The stub of its AdminService.
        discovery: The stub of its DiscoveryService.
        metadata: The operator's key, as calls carry it.
        stores: The host's stores.
    """

    address: str
    tcp_address: str
    gateway: gateway_pb2_grpc.GatewayServiceStub
    admin: admin_pb2_grpc.AdminServiceStub
    discovery: discovery_pb2_grpc.DiscoveryServiceStub
    metadata: Metadata
    stores: Stores

    def __init__(
        self,
        *runners: AgentRunner,
        manifest: Manifest | str | Path | None = None,
        config: Mapping[str, Any] | None = None,
        agent: admin_pb2.Agent | None = None,
        data_folder: Path | None = None,
        database_url: str | None = None,
        configuration: str = "",
        limits: Mapping[str, float] | None = None,
        max_concurrent_runs: int = 0,
        attached: bool = False,
    ) -> None:
        self._attached = attached
        self._runners = runners
        self._manifest = manifest
        self._config = config or {}
        self._agent = agent or admin_pb2.Agent()
        self._data_folder = data_folder
        self._database_url = database_url
        self._configuration = configuration
        self._limits = Limits().with_overrides(limits or {})
        self._max_concurrent_runs = max_concurrent_runs
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Starts everything, and returns when the host would run an event.

        Raises:
            RunnerNotServed: The host refuses a runner, or its manifest.
            ManifestError, ServeError: The runners cannot be served.
            StartupError: The host cannot start.
        """
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops everything; runs still under way are cancelled."""
        await self._stack.aclose()

    async def _start(self) -> None:
        folder = self._data_folder
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="runmesh-test-")
            folder = Path(self._stack.enter_context(temporary)) / "data"
        dials = bool(self._runners) and not self._attached
        served = await self._serve_runners() if dials else None
        await self._start_host(folder, served)
        if self._runners and self._attached:
            served = await self._attach_runners()
        if served is not None:
            await self._wait_for(served.manifest)
            await self._have_agents(served.manifest)

    async def _serve_runners(self) -> RunnerServer:
        sockets = self._stack.enter_context(SocketFolder.create())
        self._runner_address = f"unix:{sockets.new_path()}"
        server = RunnerServer(
            self._runners,
            manifest=self._manifest,
            listen=self._runner_address,
            max_concurrent_runs=self._max_concurrent_runs,
        )
        await server.start()
        self._stack.push_async_callback(server.drain, 0.0)
        return server

    async def _attach_runners(self) -> RunnerServer:
        manifest = manifest_of(self._runners, self._manifest)
        request = attach_tokens_pb2.CreateAttachTokenRequest(plugin_id=manifest.plugin_id)
        made = await self.admin.CreateAttachToken(request, metadata=self.metadata)
        server = RunnerServer(
            self._runners,
            manifest=manifest,
            attach=Attach(host=self.address, token=made.secret),
            max_concurrent_runs=self._max_concurrent_runs,
        )
        await server.start()
        self._stack.push_async_callback(server.drain, 0.0)
        return server

    async def _start_host(self, folder: Path, served: RunnerServer | None) -> None:
        hurry = asyncio.Event()
        settings = Settings(
            data_folder=folder,
            grpc_address="127.0.0.1:0",
            http_address="",
            database_url=self._database_url,
            static_runners=((served.manifest.plugin_id, self._runner_address),) if served else (),
            config_file=self._write_configuration(),
            shipped_plugins=False,
            limits=self._limits,
        )
        host = await self._stack.enter_async_context(running_host(settings, hurry=hurry))
        # Runs that a test leaves behind get no grace.
        self._stack.callback(hurry.set)
        self.stores, self.address = host.stores, host.addresses.socket
        self.tcp_address = host.addresses.grpc
        key = (settings.data_folder / "operator.key").read_text().strip()
        self.metadata = (("authorization", f"Bearer {key}"),)
        channel = await self._stack.enter_async_context(open_channel(self.address))
        self.gateway = gateway_pb2_grpc.GatewayServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)
        self.discovery = discovery_pb2_grpc.DiscoveryServiceStub(channel)

    def _write_configuration(self) -> Path | None:
        if not self._configuration:
            return None
        folder = tempfile.TemporaryDirectory(prefix="runmesh-test-")
        file = Path(self._stack.enter_context(folder)) / "configuration.yaml"
        file.write_text(self._configuration, "utf-8")
        return file

    async def _wait_for(self, manifest: Manifest) -> None:
        """Wait until the host has shaken hands with the runners' process."""
        wanted = {manifest.runners[runner.name].id for runner in self._runners}
        try:
            async with asyncio.timeout(_INSTANCE_WAIT_SECONDS):
                while not await self._serves(wanted):  # noqa: ASYNC110 - the host tells by its answers alone
                    await asyncio.sleep(_INSTANCE_POLL_SECONDS)
        except TimeoutError as error:
            raise RunnerNotServed(f"the host does not serve {', '.join(sorted(wanted))}") from error

    async def _serves(self, wanted: set[str]) -> bool:
        listed = await self.discovery.ListRunners(
            discovery_pb2.ListRunnersRequest(), metadata=self.metadata
        )
        for fault in listed.faults:
            raise RunnerNotServed(f"{fault.runner_id}: {fault.field} {fault.rule}")
        for instance in listed.instances:
            if instance.state in _REFUSED:
                raise RunnerNotServed(f"{instance.plugin_id}: {instance.reason}")
        return any(
            instance.state == discovery_pb2.INSTANCE_STATE_SERVING
            and wanted <= set(instance.runner_ids)
            for instance in listed.instances
        )

    async def _have_agents(self, manifest: Manifest) -> None:
        agents = []
        for index, runner in enumerate(self._runners):
            agent = admin_pb2.Agent(
                id=DEFAULT_AGENT if index == 0 else runner.name,
                runner_id=manifest.runners[runner.name].id,
                config_json=json.dumps(dict(self._config)),
            )
            agent.MergeFrom(self._agent)
            agents.append(agent)
        binding = admin_pb2.Binding(
            id=DEFAULT_AGENT, agent_id=DEFAULT_AGENT, event_types=_EVENT_TYPES
        )
        await self.apply(*agents, bindings=(binding,))

    async def apply(
        self, *agents: admin_pb2.Agent, bindings: Sequence[admin_pb2.Binding] = ()
    ) -> admin_pb2.ApplyResponse:
        """Has agents and bindings, as `runmesh apply` does.

        Raises:
            AioRpcError: They break rules; its details name every fault.
        """
        request = admin_pb2.ApplyRequest(agents=agents, bindings=bindings)
        return await self.admin.Apply(request, metadata=self.metadata)

    def event(self, text: str | None = None, **fields: Any) -> event_pb2.EventEnvelope:
        """Returns an event: a user says something in a conversation, unless fields say otherwise.

        Args:
            text: What was said. None: nothing.
            **fields: Fields of the event, by the names of the contract.
        """
        event = event_pb2.EventEnvelope(
            type="message.received",
            source=event_pb2.EVENT_SOURCE_API,
            conversation_id="conversation",
            actor=event_pb2.Actor(type="user", id="user"),
        )
        if text is not None:
            event.input.text = text
        event.MergeFrom(event_pb2.EventEnvelope(**fields))
        return event

    async def dispatch(
        self, text: str | None = None, *, agent_id: str = "", **fields: Any
    ) -> Outcome:
        """Dispatches an event, and returns what came of its run.

        Args:
            text: As in `event`.
            agent_id: The agent to answer it; empty: the bindings decide.
            **fields: As in `event`.

        Raises:
            AioRpcError: The host refuses the event.
        """
        request = gateway_pb2.DispatchRequest(event=self.event(text, **fields), agent_id=agent_id)
        return await _outcome(self.gateway.Dispatch(request, metadata=self.metadata))

    async def submit(
        self, text: str | None = None, *, agent_id: str = "", **fields: Any
    ) -> gateway_pb2.Run:
        """Submits an event as `dispatch` does, and returns its run at once."""
        request = gateway_pb2.SubmitEventRequest(
            event=self.event(text, **fields), agent_id=agent_id
        )
        return (await self.gateway.SubmitEvent(request, metadata=self.metadata)).run

    async def watch(self, run_id: str, after: int = 0) -> Outcome:
        """Watches a run to its end, and returns what came after a sequence."""
        return await _outcome(self._watching(run_id, after))

    async def results(self, run_id: str, after: int = 0) -> AsyncIterator[RunResult]:
        """Yields the results of a run after a sequence, as they come, until it has ended."""
        async for response in self._watching(run_id, after):
            for result in response.results.results:
                yield result

    async def cancel(self, run_id: str, reason: str = "") -> gateway_pb2.Run:
        """Cancels a run, and returns it when it has ended."""
        request = gateway_pb2.CancelRunRequest(run_id=run_id, reason=reason)
        return (await self.gateway.CancelRun(request, metadata=self.metadata)).run

    def _watching(self, run_id: str, after: int) -> Any:
        request = gateway_pb2.WatchRunRequest(run_id=run_id, after_sequence=after)
        return self.gateway.WatchRun(request, metadata=self.metadata)


async def _outcome(call: Any) -> Outcome:
    results: list[RunResult] = []
    run = gateway_pb2.Run()
    async for response in call:
        results += response.results.results
        if response.HasField("ended"):
            run = response.ended
    return Outcome(run, tuple(results))
