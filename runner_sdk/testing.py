"""Tests of runners: the runner on a real loopback server, called by a host that stands in.

The stand-in keeps to the contract: it shakes hands, lists the runners, gives each run its tokens,
checks what comes back, and answers the runner's own calls as the test says. It needs nothing but
the SDK::

    async def test_it_greets_by_name() -> None:
        async with StandInHost(Greeter()) as host:
            host.answer("GetPrompt", GetPromptResponse())
            outcome = await host.run("hello", config={"name": "Ada"})
        assert outcome.text == "Hello, Ada"

`run_once` does the same without `async`.
"""

import asyncio
import secrets
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from grpc import aio
from runmesh.v1 import context_pb2, discovery_pb2, discovery_pb2_grpc, event_pb2, run_pb2
from runmesh.v1.manifest_pb2 import RunnerManifest
from runmesh.v1.result_pb2 import RunResult
from runmesh.v1.run_pb2_grpc import RunServiceStub

from runner_sdk._json import to_json
from runner_sdk._server import RunnerServer
from runner_sdk._standin_api import Answer, HostCall, StandInApi
from runner_sdk._standin_run import ContractBroken, RunCall, RunOutcome
from runner_sdk._transport import Channels, server_options
from runner_sdk._wire import Unchecked
from runner_sdk.manifest import PROTOCOL_VERSION, Manifest
from runner_sdk.results import StateScope, state_scope
from runner_sdk.runner import AgentRunner

__all__ = [
    "ContractBroken",
    "HostCall",
    "RunCall",
    "RunOutcome",
    "RunResult",
    "RunnerServer",
    "StandInHost",
    "Unchecked",
    "run_once",
]


class StandInHost:
    """A host that stands in for a real one, in a test. Use it with `async with`.

    Args:
        *runners: The runners to serve, on a loopback port of their own.
        manifest: Their manifest, or its path. By default the `manifest.yaml` above their source;
            `Manifest.minimal` makes one without files.
        max_concurrent_runs: As in `serve`.
        address: Instead of runners: where a runner is served already, in whatever language.

    Attributes:
        calls: The calls that runners made to the host, in order.
        manifests: The runners' manifests, by name.
        handshake: What the runner's process said of itself.
    """

    def __init__(
        self,
        *runners: AgentRunner,
        manifest: Manifest | str | Path | None = None,
        max_concurrent_runs: int = 0,
        address: str | None = None,
    ) -> None:
        self._runners = runners
        self._manifest = manifest
        self._max_concurrent_runs = max_concurrent_runs
        self._address = address
        self._api = StandInApi()
        self._channels = Channels()
        self._runner_server: RunnerServer | None = None
        self._api_server: aio.Server | None = None
        self._api_address = ""
        self.handshake = discovery_pb2.HandshakeResponse()
        self.manifests: dict[str, RunnerManifest] = {}
        self.host_id = f"stand-in-{secrets.token_hex(4)}"

    @property
    def calls(self) -> list[HostCall]:
        """The calls that runners made to the host, in order."""
        return self._api.calls

    @property
    def channel(self) -> aio.Channel:
        """The channel to the runner's process, for whatever the methods here do not do."""
        return self._channels.to(self._address or "")

    @property
    def server(self) -> RunnerServer:
        """The server of the runners, where this host started it."""
        if self._runner_server is None:
            raise ValueError("the runners are served elsewhere")
        return self._runner_server

    async def __aenter__(self) -> Self:
        """Serves the runners and shakes hands with them."""
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops everything; runs still under way are cancelled."""
        await self._stop()

    async def _start(self) -> None:
        self._api_server = aio.server(options=server_options())
        self._api.add_to(self._api_server)
        port = self._api_server.add_insecure_port("127.0.0.1:0")
        self._api_address = f"127.0.0.1:{port}"
        await self._api_server.start()
        if self._address is None:
            self._runner_server = RunnerServer(
                self._runners,
                manifest=self._manifest,
                listen="127.0.0.1:0",
                max_concurrent_runs=self._max_concurrent_runs,
            )
            self._address = await self._runner_server.start()
        await self._meet()

    async def _stop(self) -> None:
        if self._runner_server is not None:
            await self._runner_server.drain(0.0)
        await self._channels.close()
        if self._api_server is not None:
            await self._api_server.stop(None)

    def answer(self, method: str, answer: Answer) -> None:
        """Says how a call of the runner's to the host is answered from now on.

        Args:
            method: The call, such as `GetPrompt`.
            answer: A response, a list of them for a stream, a HostCallError to refuse it, or a
                function that is given the request and returns, or raises, one of these.
        """
        self._api.answer(method, answer)

    async def run(self, text: str | None = None, **circumstances: Any) -> RunOutcome:
        """Runs a runner on an event and returns what came of it.

        Args:
            text: What was said. None: an event without text.
            **circumstances: As in `start`.

        Raises:
            ContractBroken: The runner broke the contract.
            AioRpcError: The runner refused the run.
        """
        return await self.start(text, **circumstances).outcome()

    def start(
        self,
        text: str | None = None,
        *,
        runner: str = "default",
        config: Mapping[str, Any] | None = None,
        event_type: str = "message.received",
        state: Mapping[StateScope, Mapping[str, Any]] | None = None,
        context: context_pb2.RunContext | None = None,
        timeout_seconds: float | None = 30.0,
    ) -> RunCall:
        """Starts a run; iterate over what is returned for its results.

        Args:
            text: What was said. None: an event without text.
            runner: The runner's name.
            config: The agent's configuration. Defaults of the manifest are filled in.
            event_type: What happened.
            state: State at the start, by scope and key.
            context: Anything else: fields that are set here take the place of the usual ones.
            timeout_seconds: How long the run may take. None: no deadline.
        """
        manifest = self.manifests.get(runner)
        if manifest is None:
            raise ValueError(f"runner: {runner!r} is none of {', '.join(self.manifests)}")
        run_context = self._context(manifest, event_type, config or {})
        if text is not None:
            run_context.input.text = text
            run_context.input.parts.add().text = text
        for scope, entries in (state or {}).items():
            state_scope(scope)
            values = getattr(run_context.state, f"{scope}_json")
            for key, value in entries.items():
                values[key] = to_json(value, field=f"state {scope} {key!r}")
        if context is not None:
            run_context.MergeFrom(context)
        request = run_pb2.RunRequest(runner_id=manifest.id, context=run_context)
        if timeout_seconds is not None:
            request.timeout.FromMilliseconds(round(timeout_seconds * 1000))
        request.host_access.host_id = self.host_id
        request.host_access.address = self._api_address
        request.host_access.run_token = self._api.issue(run_context.run_id)
        request.host_access.instance_token = self._api.instance_token
        return RunCall(request=request, stub=RunServiceStub(self.channel), api=self._api)

    async def _meet(self) -> None:
        stub = discovery_pb2_grpc.DiscoveryServiceStub(self.channel)
        self.handshake = await stub.Handshake(
            discovery_pb2.HandshakeRequest(
                host_id=self.host_id,
                host_name="stand-in",
                host_version="0",
                protocol_versions=[PROTOCOL_VERSION],
            ),
            wait_for_ready=True,
            timeout=15,
        )
        if self.handshake.protocol_version != PROTOCOL_VERSION:
            raise ContractBroken(
                f"the runner picked the version {self.handshake.protocol_version!r} "
                f"when offered {PROTOCOL_VERSION!r}"
            )
        listed = await stub.ListRunners(discovery_pb2.ListRunnersRequest())
        self.manifests = {manifest.name: manifest for manifest in listed.runners}

    def _context(
        self, manifest: RunnerManifest, event_type: str, config: Mapping[str, Any]
    ) -> context_pb2.RunContext:
        known = {entry.name for entry in manifest.config_schema}
        unknown = sorted(set(config) - known)
        if known and unknown:
            raise ValueError(f"config: {unknown[0]!r} is no field of {manifest.id}")
        entries = [
            f"{to_json(entry.name, field='name')}:{entry.default_json}"
            for entry in manifest.config_schema
            if entry.HasField("default_json") and entry.name not in config
        ]
        entries += [
            f"{to_json(name, field='name')}:{to_json(value, field=name)}"
            for name, value in config.items()
        ]
        context = context_pb2.RunContext(
            run_id=str(uuid.uuid4()),
            agent_id="agent",
            session_key="session",
            config_json=f"{{{','.join(entries)}}}",
        )
        context.trigger.type = context.event.type = event_type
        context.trigger.source = context.event.source = event_pb2.EVENT_SOURCE_API
        context.trigger.time.GetCurrentTime()
        context.event.event_id = str(uuid.uuid4())
        context.conversation.conversation_id = "conversation"
        context.actor.type, context.actor.id = "user", "user"
        context.delivery.surface = "api"
        context.delivery.supports_streaming = True
        context.context.inline_policy.mode = context_pb2.INLINE_MODE_CURRENT_EVENT
        context.context.inline_policy.delivered_count = 1
        context.runtime.host_id = self.host_id
        context.runtime.host_version = "0"
        context.runtime.protocol_version = PROTOCOL_VERSION
        context.runtime.trace_id = secrets.token_hex(16)
        context.runtime.attempt = 1
        return context


def run_once(
    runner: AgentRunner,
    text: str | None = None,
    *,
    manifest: Manifest | str | Path | None = None,
    answers: Mapping[str, Answer] | None = None,
    **circumstances: Any,
) -> RunOutcome:
    """Runs a runner once and returns what came of it, for tests without `async`.

    Args:
        runner: The runner.
        text: What was said. None: an event without text.
        manifest: As in StandInHost.
        answers: How the runner's calls to the host are answered, by name.
        **circumstances: As in `StandInHost.start`.
    """

    async def run() -> RunOutcome:
        async with StandInHost(runner, manifest=manifest) as host:
            for method, answer in (answers or {}).items():
                host.answer(method, answer)
            return await host.run(text, **circumstances)

    return asyncio.run(run())
