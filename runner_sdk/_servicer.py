"""DiscoveryService and RunService, as a runner's process serves them."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from grpc import aio
from runmesh.v1 import discovery_pb2, run_pb2
from runmesh.v1.manifest_pb2 import RunnerManifest

from runner_sdk._blocking import Blocking
from runner_sdk._interruption import Interruption
from runner_sdk._json import from_json
from runner_sdk._run import Ending, Run
from runner_sdk._settings import HostSettings
from runner_sdk._status import Status, refusal
from runner_sdk._trace import RunTrace
from runner_sdk._transport import Channels
from runner_sdk.context import RunContext
from runner_sdk.errors import FieldViolation
from runner_sdk.host import HostClient
from runner_sdk.manifest import PROTOCOL_VERSION
from runner_sdk.runner import AgentRunner

_RunServicerContext = aio.ServicerContext[run_pb2.RunRequest, bytes]

# What gRPC says where a call has no deadline is far away; a year is no deadline either.
_NO_DEADLINE_SECONDS = 365 * 86400.0


@dataclass(frozen=True, slots=True)
class Served:
    """A runner and its manifest."""

    runner: AgentRunner
    manifest: RunnerManifest


@dataclass(frozen=True, slots=True)
class Identity:
    """What the process says of itself in a handshake."""

    plugin_id: str
    plugin_version: str
    sdk_version: str
    max_concurrent_runs: int
    instance_id: str = field(default_factory=lambda: os.urandom(16).hex())


class DiscoveryServicer:
    """Says who is there. Of what a host tells it, it keeps the settings for that host's runs."""

    def __init__(
        self, *, identity: Identity, served: Mapping[str, Served], settings: HostSettings
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._manifests = [entry.manifest for _, entry in sorted(served.items())]

    async def handshake(
        self, request: discovery_pb2.HandshakeRequest, _: object
    ) -> discovery_pb2.HandshakeResponse:
        """Agrees on a protocol version; an empty one says that there is none in common."""
        common = PROTOCOL_VERSION in request.protocol_versions
        if common:
            self._settings.take(request)
        return self.introduction(PROTOCOL_VERSION if common else "")

    def welcomed(self, host: discovery_pb2.HandshakeRequest) -> None:
        """Takes what a host says of itself to a process that has attached."""
        self._settings.take(host)

    @property
    def manifests(self) -> Sequence[RunnerManifest]:
        """The runners' manifests."""
        return self._manifests

    def introduction(self, protocol_version: str = "") -> discovery_pb2.HandshakeResponse:
        """Returns who this process is, with the protocol version that was picked."""
        return discovery_pb2.HandshakeResponse(
            protocol_version=protocol_version,
            plugin_id=self._identity.plugin_id,
            plugin_version=self._identity.plugin_version,
            sdk_name="runmesh-sdk",
            sdk_language="python",
            sdk_version=self._identity.sdk_version,
            max_concurrent_runs=self._identity.max_concurrent_runs,
            instance_id=self._identity.instance_id,
        )

    async def list_runners(
        self, _: discovery_pb2.ListRunnersRequest, __: object
    ) -> discovery_pb2.ListRunnersResponse:
        """Lists the runners' manifests."""
        return discovery_pb2.ListRunnersResponse(runners=self._manifests)


class RunServicer:
    """Runs runs, as many at once as the process takes, until it drains."""

    def __init__(
        self,
        *,
        served: Mapping[str, Served],
        max_concurrent_runs: int,
        channels: Channels,
        settings: HostSettings,
    ) -> None:
        self._served = served
        self._settings = settings
        self._max_concurrent_runs = max_concurrent_runs
        self._channels = channels
        self._runs: set[Run] = set()
        self._streams: set[Run] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    @property
    def active(self) -> int:
        """How many runs are under way: those whose code has not ended, whoever still listens."""
        return len(self._runs)

    async def run(self, request: run_pb2.RunRequest, context: _RunServicerContext) -> None:
        """Starts a run and sends its results as they come."""
        try:
            run = self.accept(
                request,
                metadata=context.invocation_metadata() or (),
                remaining_seconds=_remaining(context),
            )
        except Refused as refused:
            await context.abort_with_status(refused.status)
        try:
            while frame := await run.outbox.take():
                await context.write(frame)
        except aio.InternalError:
            # The caller left between two frames: nobody is there to tell.
            run.abandon()
        except BaseException:
            # Cancelled: the caller left, the deadline passed, or the connection is gone.
            run.abandon()
            raise
        finally:
            self.let_go(run)

    async def interrupt(
        self,
        request: run_pb2.InterruptRequest,
        context: aio.ServicerContext[run_pb2.InterruptRequest, run_pb2.InterruptResponse],
    ) -> run_pb2.InterruptResponse:
        """Stops a run and answers when its code has ended."""
        try:
            was_active = await self.stop_run(request)
        except Refused as refused:
            await context.abort_with_status(refused.status)
        return run_pb2.InterruptResponse(was_active=was_active)

    def accept(
        self,
        request: run_pb2.RunRequest,
        *,
        metadata: Iterable[tuple[str, str | bytes]],
        remaining_seconds: float | None = None,
    ) -> Run:
        """Starts a run; whoever sends its results lets it go afterwards.

        Args:
            request: The run.
            metadata: What came beside it, such as its trace.
            remaining_seconds: How long it may take where the request does not say.

        Raises:
            Refused: It cannot be run here, or not now.
        """
        refused = self._refusal_of(request)
        if refused is not None:
            raise Refused(refused)
        try:
            return self._start(request, metadata, remaining_seconds)
        except _Invalid as error:
            raise Refused(_invalid("context.config_json", str(error))) from error

    def let_go(self, run: Run) -> None:
        """Says that nothing more of a run is sent."""
        self._streams.discard(run)
        self._settle()

    async def stop_run(self, request: run_pb2.InterruptRequest) -> bool:
        """Stops a run; returns, when its code has ended, whether it was under way.

        Raises:
            Refused: The runner's manifest does not have the capability.
        """
        runs = [run for run in self._runs if run.run_id == request.run_id]
        if not self._can_interrupt(runs):
            raise Refused(
                refusal(
                    grpc.StatusCode.UNIMPLEMENTED,
                    "NOT_IMPLEMENTED",
                    "the runner's manifest does not have the capability `interrupt`",
                    metadata={"run_id": request.run_id},
                )
            )
        for run in runs:
            run.interrupt(request.reason, _seconds(request.grace))
        for run in runs:
            await run.finished.wait()
        return bool(runs)

    def drain(self) -> None:
        """Takes no more runs."""
        self._draining = True

    async def ended(self) -> None:
        """Waits until no run is under way, and what the last of them said is sent."""
        await self._idle.wait()

    def stop_all(self, ending: Ending) -> None:
        """Cancels the runs under way; their streams say how they ended."""
        for run in tuple(self._runs):
            run.stop(ending)

    def _refusal_of(self, request: run_pb2.RunRequest) -> Status | None:
        if self._draining:
            return refusal(
                grpc.StatusCode.UNAVAILABLE,
                "UNAVAILABLE",
                "the runner's process is shutting down and takes no more runs",
            )
        if request.runner_id not in self._served:
            return refusal(
                grpc.StatusCode.NOT_FOUND,
                "NOT_FOUND",
                f"runner_id: {request.runner_id!r} is not served here; "
                f"there are {', '.join(sorted(self._served))}",
                metadata={"resource": request.runner_id},
            )
        if not request.context.run_id:
            return _invalid("context.run_id", "must have 1 to 255 bytes, is empty")
        if 0 < self._max_concurrent_runs <= len(self._runs):
            return refusal(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "OVERLOADED",
                f"{len(self._runs)} runs are under way, as many as this process takes",
                metadata={"limit": str(self._max_concurrent_runs)},
                retry_after_seconds=1.0,
            )
        return None

    def _can_interrupt(self, runs: list[Run]) -> bool:
        if not runs:
            return any(entry.manifest.capabilities.interrupt for entry in self._served.values())
        return all(
            entry.manifest.capabilities.interrupt
            for entry in self._served.values()
            if any(run.runner is entry.runner for run in runs)
        )

    def _start(
        self,
        request: run_pb2.RunRequest,
        metadata: Iterable[tuple[str, str | bytes]],
        remaining_seconds: float | None,
    ) -> Run:
        timeout_seconds = remaining_seconds
        if request.HasField("timeout"):
            timeout_seconds = _seconds(request.timeout)
        trace = RunTrace(metadata)
        run_context = _run_context(
            request,
            trace=trace,
            timeout_seconds=timeout_seconds,
            channels=self._channels,
            settings=self._settings.of(request.host_access.host_id),
        )
        run = Run(
            runner=self._served[request.runner_id].runner,
            context=run_context,
            trace=trace,
            timeout_seconds=timeout_seconds,
            on_finished=self._forget,
        )
        self._runs.add(run)
        self._streams.add(run)
        self._idle.clear()
        run.start()
        return run

    def _forget(self, run: Run) -> None:
        self._runs.discard(run)
        self._settle()

    def _settle(self) -> None:
        if not self._runs and not self._streams:
            self._idle.set()


def _run_context(
    request: run_pb2.RunRequest,
    *,
    trace: RunTrace,
    timeout_seconds: float | None,
    channels: Channels,
    settings: Mapping[str, Any],
) -> RunContext:
    deadline = None
    if timeout_seconds is not None:
        deadline = datetime.now(UTC) + timedelta(seconds=timeout_seconds)
    loop = asyncio.get_running_loop()
    return RunContext(
        proto=request.context,
        config=_config_of(request.context.config_json),
        settings=settings,
        host=HostClient(
            access=request.host_access,
            channels=channels,
            trace=trace,
            remaining_seconds=_countdown(loop.time, timeout_seconds),
            tools=request.context.resources.tools,
        ),
        interrupted=Interruption(),
        deadline=deadline,
        blocking=Blocking(loop),
    )


class Refused(Exception):
    """A run, or an interrupt, that is refused.

    Attributes:
        status: How.
    """

    def __init__(self, status: Status) -> None:
        super().__init__(status.details)
        self.status = status


class _Invalid(Exception):
    """A request whose configuration cannot be read."""


def _invalid(field: str, rule: str) -> Status:
    return refusal(
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_ARGUMENT",
        f"{field}: {rule}",
        violations=[FieldViolation(field, rule)],
    )


def _config_of(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        config = from_json(text)
    except (ValueError, RecursionError) as error:
        raise _Invalid(f"must be a JSON object: {error}") from error
    if not isinstance(config, dict):
        raise _Invalid(f"must be a JSON object, is a {type(config).__name__}")
    return config


def _countdown(
    clock: Callable[[], float], timeout_seconds: float | None
) -> Callable[[], float | None]:
    if timeout_seconds is None:
        return lambda: None
    end = clock() + timeout_seconds
    return lambda: max(0.0, end - clock())


def _remaining(context: Any) -> float | None:
    remaining: float | None = context.time_remaining()
    if remaining is None or remaining > _NO_DEADLINE_SECONDS:
        return None
    return remaining


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
