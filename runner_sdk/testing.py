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
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from grpc import aio
from runmesh.v1 import context_pb2, discovery_pb2, discovery_pb2_grpc, event_pb2, run_pb2
from runmesh.v1.manifest_pb2 import RunnerManifest
from runmesh.v1.result_pb2 import RunCompleted, RunFailed, RunResult
from runmesh.v1.run_pb2_grpc import RunServiceStub
from runmesh.v1.types_pb2 import ChatMessage

from runner_sdk._json import to_json
from runner_sdk._server import RunnerServer
from runner_sdk._standin_api import Answer, HostCall, StandInApi
from runner_sdk._transport import Channels, server_options
from runner_sdk._wire import FRAME_BYTES, RESULT_BYTES, Unchecked
from runner_sdk.manifest import PROTOCOL_VERSION, Manifest
from runner_sdk.results import StateScope, state_scope
from runner_sdk.runner import AgentRunner

__all__ = [
    "ContractBroken",
    "HostCall",
    "RunCall",
    "RunOutcome",
    "RunResult",
    "StandInHost",
    "Unchecked",
    "run_once",
]

_TERMINAL = ("run_completed", "run_failed")


class ContractBroken(AssertionError):
    """The runner did something that the contract does not allow."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What came of a run.

    Attributes:
        run_id: The run.
        results: All results, in order.
        frames: In how many frames they came.
    """

    run_id: str
    results: tuple[RunResult, ...] = field(repr=False)
    frames: int

    @property
    def messages(self) -> list[ChatMessage]:
        """The completed messages, that of the terminal result included."""
        found = [
            result.message_completed.message
            for result in self.results
            if result.HasField("message_completed")
        ]
        if self.completed is not None and self.completed.HasField("message"):
            found.append(self.completed.message)
        return found

    @property
    def streamed_text(self) -> str:
        """The text of all deltas, joined."""
        return "".join(result.message_delta.text for result in self.results)

    @property
    def text(self) -> str:
        """What the runner said: the text of its messages, or of its deltas where it sent none."""
        if not self.messages:
            return self.streamed_text
        return "".join(part.text for message in self.messages for part in message.parts)

    @property
    def completed(self) -> RunCompleted | None:
        """How the run ended well, or None."""
        last = self.results[-1] if self.results else RunResult()
        return last.run_completed if last.HasField("run_completed") else None

    @property
    def failed(self) -> RunFailed | None:
        """How the run ended badly, or None."""
        last = self.results[-1] if self.results else RunResult()
        return last.run_failed if last.HasField("run_failed") else None

    def of_kind(self, kind: str) -> list[Any]:
        """Returns the payloads of one kind, such as `tool_call_started`."""
        return [
            getattr(result, kind) for result in self.results if result.WhichOneof("payload") == kind
        ]


class RunCall:
    """A run under way: iterate over it for its results, as they come."""

    def __init__(
        self, *, request: run_pb2.RunRequest, stub: RunServiceStub, api: StandInApi
    ) -> None:
        self.run_id = request.context.run_id
        self._token = request.host_access.run_token
        self._stub = stub
        self._api = api
        timeout = request.timeout.ToMilliseconds() / 1000 if request.HasField("timeout") else None
        self._call = stub.Run(request, timeout=timeout)
        self._results: list[RunResult] = []
        self._frames = 0

    async def __aiter__(self) -> AsyncIterator[RunResult]:
        """Yields the results, each checked against the contract."""
        try:
            async for frame in self._call:
                self._frames += 1
                if frame.ByteSize() > FRAME_BYTES and len(frame.results) > 1:
                    raise ContractBroken(f"a frame has {frame.ByteSize()} bytes")
                for result in frame.results:
                    self._check(result)
                    self._results.append(result)
                    yield result
            if not self._results or self._results[-1].WhichOneof("payload") not in _TERMINAL:
                raise ContractBroken("the stream ended without a terminal result")
        finally:
            self._api.revoke(self._token)

    async def outcome(self) -> RunOutcome:
        """Waits for the end of the run and returns what came of it."""
        async for _ in self:
            pass
        return RunOutcome(self.run_id, tuple(self._results), self._frames)

    async def interrupt(self, reason: str = "cancelled", *, grace_seconds: float = 5.0) -> bool:
        """Asks the runner to stop; returns, when it has, whether the run was under way."""
        request = run_pb2.InterruptRequest(run_id=self.run_id, reason=reason)
        request.grace.FromMilliseconds(round(grace_seconds * 1000))
        response = await self._stub.Interrupt(request)
        return response.was_active

    def cancel(self) -> None:
        """Leaves: cancels the call, as a host does whose caller is gone."""
        self._call.cancel()

    def _check(self, result: RunResult) -> None:
        expected = len(self._results) + 1
        if result.run_id != self.run_id:
            raise ContractBroken(f"result {expected} names the run {result.run_id!r}")
        if result.sequence != expected:
            raise ContractBroken(f"result {expected} has the sequence {result.sequence}")
        if self._results and self._results[-1].WhichOneof("payload") in _TERMINAL:
            raise ContractBroken(f"result {expected} follows the terminal result")
        if result.WhichOneof("payload") is None:
            raise ContractBroken(f"result {expected} has no payload that this version knows")
        size = result.ByteSize() - len(result.artifact_created.inline.data)
        if size > RESULT_BYTES:
            raise ContractBroken(f"result {expected} has {size} bytes; the limit is {RESULT_BYTES}")


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
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops everything; runs still under way are cancelled."""
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
