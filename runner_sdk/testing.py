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
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from grpc import aio
from runmesh.v1 import context_pb2, discovery_pb2, discovery_pb2_grpc, run_pb2
from runmesh.v1.manifest_pb2 import RunnerManifest
from runmesh.v1.result_pb2 import RunResult
from runmesh.v1.run_pb2_grpc import RunServiceStub

from runner_sdk._server import RunnerServer, manifest_of
from runner_sdk._standin.active_run import ActiveRun
from runner_sdk._standin.api import Answer, HostCall, StandInApi
from runner_sdk._standin.givens import Givens, state_scopes_of, tool_call
from runner_sdk._standin.handed import hand_over, new_context
from runner_sdk._standin.run import ContractBroken, RunCall, RunOutcome
from runner_sdk._transport import Channels, server_options
from runner_sdk._wire import Unchecked
from runner_sdk.manifest import PROTOCOL_VERSION, Manifest
from runner_sdk.results import StateScope
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
    "manifest_of",
    "run_once",
    "tool_call",
]


class StandInHost(Givens):
    """A host that stands in for a real one, in a test. Use it with `async with`.

    Args:
        *runners: The runners to serve, on a loopback port of their own.
        manifest: Their manifest, or its path. By default the `manifest.yaml` above their source;
            `Manifest.minimal` makes one without files.
        max_concurrent_runs: As in `serve`.
        address: Instead of runners: where a runner is served already, in whatever language.
        state_scopes: The scopes of state that runs may use, as an agent's policy grants them. By
            default all.

    Attributes:
        calls: The calls that runners made to the host and that their rights allow, in order.
        manifests: The runners' manifests, by name.
        handshake: What the runner's process said of itself.
    """

    def __init__(
        self,
        *runners: AgentRunner,
        manifest: Manifest | str | Path | None = None,
        max_concurrent_runs: int = 0,
        address: str | None = None,
        state_scopes: Iterable[StateScope] | None = None,
    ) -> None:
        super().__init__()
        self._runners = runners
        self._manifest = manifest
        self._max_concurrent_runs = max_concurrent_runs
        self._address = address
        self._state_scopes = state_scopes_of(state_scopes)
        self._api = StandInApi(self._world, state_scopes=self._state_scopes)
        self._channels = Channels()
        self._runner_server: RunnerServer | None = None
        self._api_server: aio.Server | None = None
        self._api_address = ""
        self.handshake = discovery_pb2.HandshakeResponse()
        self.manifests: dict[str, RunnerManifest] = {}
        self.host_id = f"stand-in-{secrets.token_hex(4)}"

    @property
    def calls(self) -> list[HostCall]:
        """The calls that runners made to the host and that their rights allow, in order."""
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
        """Says how a call of the runner's is answered from now on, instead of by the host itself.

        The run's rights are checked all the same.

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
            state: State to write before the run starts, by scope and key.
            context: Anything else: fields that are set here take the place of the usual ones.
            timeout_seconds: How long the run may take. None: no deadline.
        """
        manifest = self.manifests.get(runner)
        if manifest is None:
            raise ValueError(f"runner: {runner!r} is none of {', '.join(self.manifests)}")
        for scope, values in (state or {}).items():
            self.set_state(scope, values)
        run_context = new_context(
            manifest, host_id=self.host_id, event_type=event_type, config=config or {}
        )
        if text is not None:
            run_context.input.text = text
            run_context.input.parts.add().text = text
        hand_over(run_context, manifest, self._world, self._state_scopes)
        if context is not None:
            run_context.MergeFrom(context)
        active = ActiveRun(manifest, run_context)
        self._world.begin(active)
        request = run_pb2.RunRequest(runner_id=manifest.id, context=run_context)
        if timeout_seconds is not None:
            request.timeout.FromMilliseconds(round(timeout_seconds * 1000))
        request.host_access.host_id = self.host_id
        request.host_access.address = self._api_address
        request.host_access.run_token = self._api.issue(active)
        request.host_access.instance_token = self._api.instance_token
        return RunCall(
            request=request, stub=RunServiceStub(self.channel), api=self._api, run=active
        )

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
        **circumstances: As in `StandInHost.start`; which runner is known already.
    """

    async def run() -> RunOutcome:
        async with StandInHost(runner, manifest=manifest) as host:
            for method, answer in (answers or {}).items():
                host.answer(method, answer)
            return await host.run(text, runner=runner.name, **circumstances)

    return asyncio.run(run())
