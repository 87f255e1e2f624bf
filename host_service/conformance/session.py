"""What every check works with: the connection, the kit's hosts, and the runs so far."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from runmesh.v1 import (
    discovery_pb2,
    discovery_pb2_grpc,
    manifest_pb2,
    run_pb2,
    run_pb2_grpc,
)

from host_service.certificates.dialling import channel_credentials
from host_service.conformance.attach_bridge import AttachBridge
from host_service.conformance.findings import Failed, Skipped
from host_service.conformance.holding import Holding
from host_service.conformance.host_api import HostCall, KitHost
from host_service.conformance.options import Options
from host_service.conformance.recorded_run import RecordedRun
from host_service.conformance.requests import run_request
from host_service.conformance.runner_process import RunnerProcess
from host_service.conformance.statuses import CALL_ADVICE, must_be_well, told
from host_service.registry.channel import client_options
from host_service.supervisor.sockets import SocketFolder

# An unread stream must stop the runner after a window, not after what gRPC thinks the line holds.
_FIXED_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))
# How many runs are under way at once where a check does not ask for more.
_AT_ONCE = 8
# In the notes of a manifest: what the kit may know of the runner.
_ECHO_NOTE, _SLOW_NOTE = "conformance.echo", "conformance.slow_config_json"
_RETRY_SECONDS = 0.1

_T = TypeVar("_T")
Change = Callable[[run_pb2.RunRequest], None]


class Unreachable(Exception):
    """Nobody answers at the address; the text says what was tried."""


class Session:
    """One runner under examination.

    Args:
        address: Where it listens; empty where the kit starts it.
        process: Its process, where the kit starts it.
        bridge: Where it attaches, where it does.
        options: How to check.

    Attributes:
        calls: What runners called the kit's hosts for, in order.
        runs: Every run that was started, in order.
        introduction: What the process says of itself; None: it did not.
        manifests: What it lists.
        holding: Holds runs up.
    """

    def __init__(
        self,
        *,
        options: Options,
        address: str = "",
        process: RunnerProcess | None = None,
        bridge: AttachBridge | None = None,
    ) -> None:
        self.options = options
        self.patience = options.patience
        self.process = process
        self.bridge = bridge
        self.calls: list[HostCall] = []
        self.runs: list[RecordedRun] = []
        self.introduction: discovery_pb2.HandshakeResponse | None = None
        self.manifests: Sequence[manifest_pb2.RunnerManifest] = ()
        self.hosts = (KitHost(self.calls), KitHost(self.calls))
        self._address = address
        self._channels: list[grpc.aio.Channel] = []
        self._sockets: SocketFolder | None = None
        self._numbers = itertools.count(1)
        self.holding = Holding(
            start=self.begin,
            must_end=self.must_end,
            new_channel=self.new_channel,
            slow_config=lambda: self.slow_config,
        )

    @property
    def address(self) -> str:
        """Where the runner listens."""
        if self.bridge is not None:
            return self.bridge.address
        return self.process.address if self.process is not None else self._address

    @property
    def channel(self) -> grpc.aio.Channel:
        """The connection that checks share."""
        return self._channels[0]

    def new_channel(self) -> grpc.aio.Channel:
        """A connection of its own, closed with the session."""
        options = (*client_options(self.address), *_FIXED_WINDOW)
        files = self.options.tls
        if files is None:
            channel = grpc.aio.insecure_channel(self.address, options=options)
        else:
            credentials = channel_credentials(files)
            channel = grpc.aio.secure_channel(self.address, credentials, options=options)
        self._channels.append(channel)
        return channel

    async def open(self) -> None:
        """Serves the kit's hosts, starts the process where that is asked for, and connects.

        Raises:
            PluginFailed: The process did not start.
            Unreachable: Nobody listens at the address.
        """
        await self._serve_hosts()
        await self._bring_up()
        await self._connect(self.patience.connect_seconds)
        await self._meet()

    async def close(self) -> None:
        """Ends runs, connections, hosts and the process."""
        await asyncio.gather(*(run.close() for run in self.runs))
        await asyncio.gather(*(channel.close() for channel in self._channels))
        await asyncio.gather(*(host.close() for host in self.hosts))
        if self._sockets is not None:
            self._sockets.close()
        if self.process is not None:
            await self.process.close()
        if self.bridge is not None:
            await self.bridge.close()

    async def is_reachable(self) -> bool:
        """Whether the process still runs, and takes calls; slow or strange answers will do."""
        if self.process is not None and not self.process.is_alive:
            return False
        stub = health_pb2_grpc.HealthStub(self.channel)
        try:
            # Not the channel's own state, which is a moment behind.
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=self.patience.health_seconds)
        except grpc.aio.AioRpcError as error:
            return error.code() is not grpc.StatusCode.UNAVAILABLE
        return True

    async def restart(self) -> None:
        """Starts the process again, or waits for somebody to do so.

        Raises:
            PluginFailed: It does not start.
            Unreachable: Nobody started it.
        """
        for run in self.runs:
            await run.close()
        for channel in self._channels:
            await channel.close()
        self._channels.clear()
        await self._bring_up()
        await self._connect(self.patience.connect_seconds)

    async def _bring_up(self) -> None:
        """Starts the process, where that is the kit's, or waits for a runner to attach."""
        if self.process is not None:
            await self.process.start(self.patience.start_seconds)
        elif self.bridge is not None:
            seconds = self.patience.attach_seconds
            if await self.bridge.attached(seconds) is None:
                raise Unreachable(
                    f"no runner attached to {self.bridge.attach_address} in {seconds:g} s"
                )

    async def _serve_hosts(self) -> None:
        first, second = self.hosts
        chosen = self.options.listening
        await first.start(chosen.address(0), chosen.tls)
        if not chosen.is_default:
            await second.start(chosen.address(1), chosen.tls)
        elif self.address.startswith("unix:") or self.process is not None:
            self._sockets = SocketFolder.create()
            await second.start(f"unix:{self._sockets.new_path()}")
        else:
            # A runner behind a port may be in another place, where files of this one are not.
            await second.start(chosen.address(1))

    async def _connect(self, timeout_seconds: float) -> None:
        channel = self.new_channel()
        try:
            async with asyncio.timeout(timeout_seconds):
                await channel.channel_ready()
        except TimeoutError as error:
            raise Unreachable(
                f"nobody serves gRPC at {self.address}, tried for {timeout_seconds:g} s"
            ) from error

    async def _meet(self) -> None:
        """Learns what checks go by; what is wrong with it is for the checks to tell."""
        try:
            self.introduction = await self.handshake()
            self.manifests = (await self.list_runners()).runners
        except Failed:
            return

    async def handshake(
        self,
        *,
        versions: Sequence[str] = ("1",),
        host_id: str = "",
        settings_json: str | None = None,
        change: Callable[[discovery_pb2.HandshakeRequest], None] | None = None,
    ) -> discovery_pb2.HandshakeResponse:
        """Shakes hands once; Failed where that is not answered."""
        request = discovery_pb2.HandshakeRequest(
            host_id=host_id or self.hosts[0].host_id,
            host_name="Conformance kit",
            host_version="0",
            protocol_versions=versions,
            settings_json=settings_json,
        )
        if change is not None:
            change(request)
        stub = discovery_pb2_grpc.DiscoveryServiceStub(self.channel)
        return await self.ask(stub.Handshake(request, timeout=self.patience.answer_seconds))

    async def list_runners(
        self, request: discovery_pb2.ListRunnersRequest | None = None
    ) -> discovery_pb2.ListRunnersResponse:
        """Lists the runners; Failed where that is not answered."""
        stub = discovery_pb2_grpc.DiscoveryServiceStub(self.channel)
        request = request or discovery_pb2.ListRunnersRequest()
        return await self.ask(stub.ListRunners(request, timeout=self.patience.answer_seconds))

    async def health(self, timeout_seconds: float | None = None) -> int:
        """What the standard health check says; Failed where it is not answered."""
        stub = health_pb2_grpc.HealthStub(self.channel)
        timeout_seconds = timeout_seconds or self.patience.answer_seconds
        answer = await self.ask(
            stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_seconds),
            timeout_seconds=timeout_seconds,
        )
        status: int = answer.status
        return status

    async def interrupt(
        self, run_id: str, *, grace_seconds: float, reason: str = "cancelled"
    ) -> run_pb2.InterruptResponse:
        """Interrupts a run, with as much time to answer as the grace.

        Raises:
            AioRpcError: It failed.
        """
        grace = Duration()
        grace.FromNanoseconds(round(grace_seconds * 1e9))
        request = run_pb2.InterruptRequest(run_id=run_id, reason=reason, grace=grace)
        stub = run_pb2_grpc.RunServiceStub(self.channel)
        return await stub.Interrupt(request, timeout=grace_seconds)

    async def ask(self, call: Awaitable[_T], *, timeout_seconds: float | None = None) -> _T:
        """Awaits a call that must be answered; Failed says how it was not."""
        limit = timeout_seconds or self.patience.answer_seconds
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise Failed(
                expected=f"an answer within {limit:g} s",
                got=told(error.code(), error.details()),
                advice=CALL_ADVICE.get(error.code(), "answer the call instead of failing it"),
            ) from error

    @property
    def manifest(self) -> manifest_pb2.RunnerManifest:
        """The runner that is checked; Skipped where there is none."""
        wanted = self.options.runner
        found = sorted(
            (each for each in self.manifests if not wanted or wanted in {each.id, each.name}),
            key=lambda each: each.id,
        )
        if not found:
            named = f"no runner {wanted!r}" if wanted else "no runner"
            raise Skipped(f"the process lists {named}, so there is nothing to run")
        return found[0]

    @property
    def limit(self) -> int:
        """How many runs the process takes at once; 0: no limit of its own."""
        return max(0, self.introduction.max_concurrent_runs) if self.introduction else 0

    @property
    def at_once(self) -> int:
        """How many runs the kit has under way at once."""
        return min(self.limit or _AT_ONCE, _AT_ONCE)

    @property
    def is_echo(self) -> bool:
        """Whether the runner answers a text with the same text."""
        if self.options.echo is not None:
            return self.options.echo
        return self.manifest.metadata.get(_ECHO_NOTE) == "true"

    @property
    def slow_config(self) -> Mapping[str, Any] | None:
        """The configuration with which a run lasts; None: not known."""
        if self.options.slow_config is not None:
            return self.options.slow_config
        note = self.manifest.metadata.get(_SLOW_NOTE)
        try:
            config = json.loads(note) if note else None
        except ValueError:
            return None
        return config if isinstance(config, dict) else None

    def start(
        self,
        label: str,
        text: str | None = "Hello, runner.",
        *,
        event_type: str = "message.received",
        config: Mapping[str, Any] | None = None,
        timeout_seconds: float | None = 60.0,
        deadline_seconds: float | None = 60.0,
        host: int = 0,
        run_id: str = "",
        change: Change | None = None,
        channel: grpc.aio.Channel | None = None,
        reads: bool = True,
        released: bool = True,
    ) -> RecordedRun:
        """Starts a run and returns at once.

        Args:
            label: What it is for.
            text: What was said; None: an event without text.
            event_type: What happened.
            config: The agent's configuration, over that of all runs.
            timeout_seconds: The request's `timeout`; None: left out.
            deadline_seconds: The call's gRPC deadline; None: none.
            host: Which of the kit's hosts it comes from, 0 or 1.
            run_id: Its id; empty: a new one.
            change: Changes the request before it is sent.
            channel: The connection; None: the one that checks share.
            reads: Whether results are read as they come.
            released: Whether its calls to the host are answered.
        """
        chosen = self.hosts[host]
        grant = chosen.grant(run_id or str(uuid.uuid4()), f"run {next(self._numbers)} ({label})")
        if not released:
            grant.released.clear()
        request = run_request(
            self.manifest,
            host=chosen,
            grant=grant,
            text=text,
            event_type=event_type,
            config={**self.options.config, **(config or {})},
            timeout_seconds=timeout_seconds,
        )
        if change is not None:
            change(request)
        run = RecordedRun(
            label=grant.label,
            request=request,
            grant=grant,
            channel=channel or self.channel,
            deadline_seconds=deadline_seconds,
            reads=reads,
        )
        self.runs.append(run)
        return run

    async def begin(
        self, label: str, text: str | None = "Hello, runner.", **how: Any
    ) -> RecordedRun:
        """Starts a run as `start` does; once more where the slots of earlier runs are not free yet.

        A run that was cancelled is over in the runner a moment later.
        """
        give_up_at = time.monotonic() + self.patience.stop_seconds
        while True:
            run = self.start(label, text, **how)
            if not self.limit:
                return run
            await run.end(_RETRY_SECONDS)
            if not await run.is_refused() or time.monotonic() > give_up_at:
                return run
            await run.close()
            self.runs.remove(run)

    async def run(self, label: str, text: str | None = "Hello, runner.", **how: Any) -> RecordedRun:
        """Makes a run and returns when it has ended as a run must; Failed where it does not."""
        run = await self.begin(label, text, **how)
        await self.must_end(run)
        must_be_well(run)
        return run

    async def run_all(self, runs: Iterable[Mapping[str, Any]]) -> list[RecordedRun]:
        """Makes runs, as many at once as the runner takes, and returns them in order.

        The first that does not end as a run must ends them all.
        """
        slots = asyncio.Semaphore(self.at_once)

        async def make(how: Mapping[str, Any]) -> RecordedRun:
            async with slots:
                return await self.run(**how)

        tasks = [asyncio.create_task(make(how)) for how in runs]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [task.result() for task in tasks]

    async def must_end(self, run: RecordedRun, timeout_seconds: float | None = None) -> None:
        """Waits for a run's end; Failed where it does not come."""
        limit = timeout_seconds or self.patience.run_seconds
        if not await run.end(limit):
            came = len(run.results)
            await run.close()
            raise Failed(
                expected=f"the stream of {run.label} to end within {limit:g} s",
                got=f"{came} results, and no end",
                advice="send run_completed or run_failed, and return from Run",
            )
