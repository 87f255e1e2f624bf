"""An instance that the host dials: `RunService` on a channel, one call for each run."""

import asyncio
from collections.abc import Callable

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from runmesh.v1 import run_pb2, run_pb2_grpc

from host_service.registry.frames import Frame, FrameReader
from host_service.registry.run_stream import (
    Living,
    RunnerFault,
    lost_on_the_way,
    refused_by_runner,
)

_METHOD = "/runmesh.v1.RunService/Run"
# How gRPC says that there was no connection to send anything over.
_NOT_CONNECTED = "failed to connect to all addresses"


class Dialled:
    """Implements `Reach` with a connection that the host opens.

    Args:
        dial: Opens a connection.

    Attributes:
        dial: Opens another connection to the same address.
        channel: The connection.
        run_stub: `RunService` on it.
    """

    def __init__(self, dial: Callable[[], grpc.aio.Channel]) -> None:
        self.dial = dial
        self.channel = dial()
        self.run_stub = run_pb2_grpc.RunServiceStub(self.channel)

    def open_run(
        self,
        instance: Living,
        request: run_pb2.RunRequest,
        *,
        timeout_seconds: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> "DialledRun":
        """Call the runner; see the protocol."""
        return DialledRun(
            dialled=self,
            instance=instance,
            request=request,
            timeout_seconds=timeout_seconds,
            metadata=metadata,
        )

    async def close(self) -> None:
        """Close the connection; the calls on it are cancelled."""
        await self.channel.close()


class DialledRun:
    """One call of `RunService.Run`; implements `RunStream`.

    Args:
        dialled: The connection.
        instance: Which process is called.
        request: The run.
        timeout_seconds: The call's deadline; None: none.
        metadata: Trace context for the runner.
    """

    def __init__(
        self,
        *,
        dialled: Dialled,
        instance: Living,
        request: run_pb2.RunRequest,
        timeout_seconds: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> None:
        self._dialled = dialled
        self._instance = instance
        self._frames = FrameReader()
        self._has_begun = False
        open_call = dialled.channel.unary_stream(
            _METHOD,
            request_serializer=run_pb2.RunRequest.SerializeToString,
            response_deserializer=self._frames.read,
        )
        self._call = open_call(
            request, timeout=timeout_seconds, metadata=grpc.aio.Metadata(*metadata)
        )

    async def read(self) -> Frame | None:
        """Return the next frame, or None at the end; see the protocol."""
        try:
            frame = await self._call.read()
        except asyncio.CancelledError:
            if self._is_cancelled_from_outside():
                raise
            text = f"the connection to the runner was lost: {self._instance.problem}"
            raise RunnerFault("runner.unavailable", text, retryable=True) from None
        except grpc.aio.AioRpcError as error:
            # What it said before it failed was said; the next reading tells of the failure again.
            rest = self._frames.rest()
            if rest is not None:
                return rest
            raise await self._explain(error) from error
        self._has_begun = True
        return frame if isinstance(frame, Frame) else self._frames.rest()

    def _is_cancelled_from_outside(self) -> bool:
        """Return whether somebody cancelled the run, and not the connection was closed under it."""
        task = asyncio.current_task()
        return (
            not self._instance.lost.is_set()
            or not self._call.cancelled()
            or (task is not None and task.cancelling() > 0)
        )

    def cancel(self) -> None:
        """Tell the runner that nobody reads on."""
        self._call.cancel()

    async def interrupt(self, *, run_id: str, reason: str, grace_seconds: float) -> None:
        """Ask the runner to stop; see the protocol."""
        grace = Duration()
        grace.FromNanoseconds(round(grace_seconds * 1e9))
        request = run_pb2.InterruptRequest(run_id=run_id, reason=reason, grace=grace)
        try:
            await self._dialled.run_stub.Interrupt(request, timeout=grace_seconds)
        except grpc.aio.AioRpcError:
            # Whatever keeps it from answering, the host's next step is the same: the call is
            # cancelled.
            return

    async def _explain(self, error: grpc.aio.AioRpcError) -> RunnerFault:
        code, details = error.code(), error.details() or ""
        # A server that is stopped, or loses its connection, may end calls as CANCELLED. The host's
        # own cancelling is not meant: nobody reads a call on that was cancelled here.
        if code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
            return await self._explain_loss(error, details)
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return RunnerFault(
                "runner.protocol", "the process does not serve runmesh.v1.RunService"
            )
        return refused_by_runner(code, details, has_begun=self._has_begun)

    async def _explain_loss(self, error: grpc.aio.AioRpcError, details: str) -> RunnerFault:
        if not self._has_begun and details.startswith(_NOT_CONNECTED):
            return RunnerFault(
                "runner.unavailable",
                "the runner's process could not be reached",
                retryable=True,
                never_started=True,
            )
        if not self._has_begun and _is_runners_own(error):
            return refused_by_runner(grpc.StatusCode.UNAVAILABLE, details, has_begun=False)
        return await lost_on_the_way(self._instance, details)


def _is_runners_own(error: grpc.aio.AioRpcError) -> bool:
    """Return whether a runner refused a run in the contract's words: it drains."""
    # An AioRpcError is what a call is to this function: metadata, code and details.
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    info = error_details_pb2.ErrorInfo()
    return status is not None and any(
        detail.Unpack(info) and (info.domain, info.reason) == ("runmesh", "UNAVAILABLE")
        for detail in status.details
    )
