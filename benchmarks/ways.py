"""The ways from a caller to a runner: through a bare relay, or through a host.

A caller starts a run on a way and reads its results; apart from that it does the same on each, so
that a comparison of ways is one of what lies between.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import grpc
from runmesh.admin.v1 import admin_pb2, admin_pb2_grpc
from runmesh.v1 import event_pb2, gateway_pb2, gateway_pb2_grpc, run_pb2, run_pb2_grpc
from runmesh.v1.result_pb2 import RunResult

from benchmarks.job import Job

Metadata = Sequence[tuple[str, str]]

_TEXT = "hello"


class WrongRun(Exception):
    """A run did not do what it should have: its time says nothing."""


class Stream(Protocol):
    """The results of one run."""

    def results(self) -> AsyncIterator[Sequence[RunResult]]:
        """Yields results as they come, those of one frame together; ends with the run.

        Raises:
            WrongRun: The run ended otherwise than well, without being stopped.
        """

    async def stop(self) -> None:
        """Cancels the run; `results` then ends."""


class Way(Protocol):
    """A way to run a job."""

    async def prepare(self, job: Job) -> None:
        """Does what must be there before such a job can be started. Not measured."""

    def start(self, job: Job) -> Stream:
        """Starts a run."""


class RelayWay:
    """Through a bare relay that serves `RunService`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._relay = run_pb2_grpc.RunServiceStub(channel)

    async def prepare(self, job: Job) -> None:
        """Nothing is needed."""

    def start(self, job: Job) -> "RelayStream":
        """Starts a run."""
        request = run_pb2.RunRequest(runner_id="bare")
        request.context.run_id = str(uuid.uuid4())
        request.context.input.text = _TEXT
        request.context.config_json = job.bare_config()
        return RelayStream(self._relay.Run(request))


class RelayStream:
    """The frames of a bare relay."""

    def __init__(
        self, call: grpc.aio.UnaryStreamCall[run_pb2.RunRequest, run_pb2.RunResponse]
    ) -> None:
        self._call = call
        self._stopped = False

    async def results(self) -> AsyncIterator[Sequence[RunResult]]:
        """Yields results as they come."""
        try:
            while isinstance(frame := await self._call.read(), run_pb2.RunResponse):
                yield frame.results
        except asyncio.CancelledError:
            if not self._stopped:
                raise

    async def stop(self) -> None:
        """Cancels the run."""
        self._stopped = True
        self._call.cancel()


class HostWay:
    """Through a host, to one of its runners.

    Args:
        channel: The connection to the host.
        metadata: With an API key that may do everything.
        runner_id: The runner.
        config_of: Turns a job into this runner's configuration.

    Attributes:
        gateway: The host's service for callers.
        admin: The host's service for operators.
        metadata: To be sent with every call.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        metadata: Metadata,
        runner_id: str,
        config_of: Callable[[Job], str],
    ) -> None:
        self.gateway = gateway_pb2_grpc.GatewayServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)
        self.metadata = metadata
        self._runner_id = runner_id
        self._config_of = config_of
        self._agents: dict[Job, str] = {}

    async def prepare(self, job: Job) -> None:
        """Sees to it that there is an agent with this configuration."""
        if job in self._agents:
            return
        agent = admin_pb2.Agent(
            id=f"{self._runner_id.split('/')[1]}-{len(self._agents) + 1}",
            runner_id=self._runner_id,
            config_json=self._config_of(job),
        )
        await self.admin.Apply(admin_pb2.ApplyRequest(agents=[agent]), metadata=self.metadata)
        self._agents[job] = agent.id

    def start(self, job: Job) -> "GatewayStream":
        """Starts a run, in a trace that the caller has begun."""
        request = gateway_pb2.DispatchRequest(event=_event(), agent_id=self._agents[job])
        traced = (*self.metadata, ("traceparent", f"00-{uuid.uuid4().hex}-{'1' * 16}-01"))
        return GatewayStream(self.gateway, request, traced)


class BareGatewayWay:
    """Through a bare relay that serves `GatewayService`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._gateway = gateway_pb2_grpc.GatewayServiceStub(channel)

    async def prepare(self, job: Job) -> None:
        """Nothing is needed."""

    def start(self, job: Job) -> "GatewayStream":
        """Starts a run."""
        event = _event()
        event.data_json = job.bare_config()
        return GatewayStream(self._gateway, gateway_pb2.DispatchRequest(event=event), ())


class GatewayStream:
    """What a gateway says of one run.

    Attributes:
        frames: How many messages came so far.
    """

    def __init__(
        self,
        gateway: gateway_pb2_grpc.GatewayServiceStub,
        request: gateway_pb2.DispatchRequest,
        metadata: Metadata,
    ) -> None:
        self.frames = 0
        self._gateway = gateway
        self._metadata = metadata
        self._call = gateway.Dispatch(request, metadata=metadata)
        self._run_id = ""
        self._stopped = False

    async def results(self) -> AsyncIterator[Sequence[RunResult]]:
        """Yields results as they come."""
        ended = None
        while isinstance(item := await self._call.read(), gateway_pb2.DispatchResponse):
            self.frames += 1
            kind = item.WhichOneof("item")
            if kind == "results":
                yield item.results.results
            elif kind == "accepted":
                self._run_id = item.accepted.run_id
            elif kind == "ended":
                ended = item.ended
        if ended is None:
            raise WrongRun(f"the stream of run {self._run_id} broke off")
        if ended.status != gateway_pb2.RUN_STATUS_COMPLETED and not self._stopped:
            status = gateway_pb2.RunStatus.Name(ended.status)
            raise WrongRun(f"run {self._run_id} ended as {status}: {ended.failure.message}")

    async def stop(self) -> None:
        """Cancels the run; returns when it has ended."""
        self._stopped = True
        await self._gateway.CancelRun(
            gateway_pb2.CancelRunRequest(run_id=self._run_id), metadata=self._metadata
        )


def _event() -> event_pb2.EventEnvelope:
    event_id = str(uuid.uuid4())
    return event_pb2.EventEnvelope(
        event_id=event_id,
        type="message.received",
        conversation_id=event_id[:2],
        actor=event_pb2.Actor(type="user", id="benchmarks"),
        input=event_pb2.EventInput(text=_TEXT),
        delivery=event_pb2.DeliveryContext(surface="api", supports_streaming=True),
    )
