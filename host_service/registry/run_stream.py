"""One call of `RunService.Run`: opened, read frame by frame, its end told as a run failure."""

import asyncio

import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from runmesh.v1 import run_pb2

from host_service.registry.frames import Frame, FrameReader
from host_service.registry.instance import Instance

_METHOD = "/runmesh.v1.RunService/Run"
# A process that died takes its connection with it; its end is noticed by the supervisor within this
# time.
_EXIT_NOTICE_SECONDS = 0.2
# How gRPC says that there was no connection to send anything over.
_NOT_CONNECTED = "failed to connect to all addresses"


class RunnerFault(Exception):
    """The stream ended without the runner's own word.

    Attributes:
        code: A run failure code, such as `runner.crashed`.
        message: What happened, for people.
        retryable: Whether the same event might succeed later.
        never_started: Whether the runner cannot have begun, so that another instance may be tried.
        is_busy: Whether it did not begin because it has as many runs as it takes, so that the same
            instance may be tried a little later.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        never_started: bool = False,
        is_busy: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.never_started = never_started
        self.is_busy = is_busy


class RunStream:
    """The results of one run, as its runner sends them.

    Args:
        instance: Which process to call.
        request: The run.
        timeout_seconds: The call's deadline; None: none.
        metadata: Trace context for the runner.
    """

    def __init__(
        self,
        *,
        instance: Instance,
        request: run_pb2.RunRequest,
        timeout_seconds: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> None:
        self._instance = instance
        self._frames = FrameReader()
        self._has_begun = False
        open_call = instance.channel.unary_stream(
            _METHOD,
            request_serializer=run_pb2.RunRequest.SerializeToString,
            response_deserializer=self._frames.read,
        )
        self._call = open_call(
            request, timeout=timeout_seconds, metadata=grpc.aio.Metadata(*metadata)
        )

    async def read(self) -> Frame | None:
        """Return the next frame, or None at the end.

        Raises:
            RunnerFault: The call failed.
        """
        try:
            frame = await self._call.read()
        except grpc.aio.AioRpcError as error:
            # What it said before it failed was said; the next reading tells of the failure again.
            rest = self._frames.rest()
            if rest is not None:
                return rest
            raise await self._explain(error) from error
        self._has_begun = True
        return frame if isinstance(frame, Frame) else self._frames.rest()

    def cancel(self) -> None:
        """Tell the runner that nobody reads on."""
        self._call.cancel()

    async def interrupt(self, *, run_id: str, reason: str, grace_seconds: float) -> None:
        """Ask the runner to stop; return when it has, or cannot be asked, or the grace is over."""
        grace = Duration()
        grace.FromNanoseconds(round(grace_seconds * 1e9))
        request = run_pb2.InterruptRequest(run_id=run_id, reason=reason, grace=grace)
        try:
            await self._instance.run_stub.Interrupt(request, timeout=grace_seconds)
        except grpc.aio.AioRpcError:
            # Whatever keeps it from answering, the host's next step is the same: the call is
            # cancelled.
            return

    async def _explain(self, error: grpc.aio.AioRpcError) -> RunnerFault:
        code, details = error.code(), error.details() or ""
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return RunnerFault("runner.timeout", "the runner did not end before the deadline")
        # A server that is stopped, or loses its connection, may end calls as CANCELLED. The host's
        # own cancelling is not meant: nobody reads a call on that was cancelled here.
        if code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
            return await self._explain_loss(error, details)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
            return RunnerFault(
                "runner.protocol", f"the runner sent a message over the limit: {details}"
            )
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and not self._has_begun:
            return RunnerFault(
                "runner.unavailable",
                f"the runner takes no more runs: {details}",
                retryable=True,
                never_started=True,
                is_busy=True,
            )
        if code is grpc.StatusCode.NOT_FOUND:
            return RunnerFault(
                "runner.unavailable", f"the process does not serve this runner: {details}"
            )
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return RunnerFault(
                "runner.protocol", "the process does not serve runmesh.v1.RunService"
            )
        return RunnerFault("runner.error", f"the runner's call ended with {code.name}: {details}")

    async def _explain_loss(self, error: grpc.aio.AioRpcError, details: str) -> RunnerFault:
        if not self._has_begun and details.startswith(_NOT_CONNECTED):
            return RunnerFault(
                "runner.unavailable",
                "the runner's process could not be reached",
                retryable=True,
                never_started=True,
            )
        if not self._has_begun and _is_runners_own(error):
            return RunnerFault(
                "runner.unavailable",
                f"the runner takes no more runs: {details}",
                retryable=True,
                never_started=True,
            )
        try:
            await asyncio.wait_for(self._instance.lost.wait(), _EXIT_NOTICE_SECONDS)
        except TimeoutError:
            return RunnerFault(
                "runner.unavailable",
                f"the connection to the runner was lost: {details}",
                retryable=True,
            )
        return RunnerFault(
            "runner.crashed",
            f"the runner's process ended in the middle of the run: {self._instance.problem}",
            retryable=True,
        )


def _is_runners_own(error: grpc.aio.AioRpcError) -> bool:
    """Return whether a runner refused a run in the contract's words: it drains."""
    # An AioRpcError is what a call is to this function: metadata, code and details.
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    info = error_details_pb2.ErrorInfo()
    return status is not None and any(
        detail.Unpack(info) and (info.domain, info.reason) == ("runmesh", "UNAVAILABLE")
        for detail in status.details
    )
