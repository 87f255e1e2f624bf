"""The bare relay: `python -m benchmarks.floors.relay ADDRESS RUNNER`.

It passes on what a runner sends, frame by frame, in both of its services:

- `RunService.Run`: nothing but that. Whether a frame has one result or many is for the runner.
- `GatewayService.Dispatch`: in the very frames of a host: the accepted run first, the run's end in
  a frame of its own, the ended run last.
"""

import sys
from typing import Any

import grpc
import uvloop
from google.protobuf.message import Message
from runmesh.v1 import gateway_pb2, gateway_pb2_grpc, run_pb2, run_pb2_grpc

from benchmarks.floors.transport import OPTIONS, open_channel, serve


class BareRelay(run_pb2_grpc.RunServiceServicer):
    """Passes runs on to the runner.

    Args:
        runner: A channel to it.
    """

    def __init__(self, runner: grpc.aio.Channel) -> None:
        self._runner = run_pb2_grpc.RunServiceStub(runner)

    async def Run(self, request: run_pb2.RunRequest, context: Any) -> None:  # type: ignore[override] # noqa: N802
        """Passes on every frame."""
        call = self._runner.Run(request)
        while isinstance(frame := await call.read(), Message):
            await context.write(frame)


class BareGateway(gateway_pb2_grpc.GatewayServiceServicer):
    """Turns events into runs, and keeps nothing.

    Args:
        runner: A channel to the one runner.
    """

    def __init__(self, runner: grpc.aio.Channel) -> None:
        self._runner = run_pb2_grpc.RunServiceStub(runner)

    async def Dispatch(self, request: gateway_pb2.DispatchRequest, context: Any) -> None:  # type: ignore[override] # noqa: N802
        """Passes on every frame, between the accepted and the ended run.

        The event's `data_json` is the run's configuration: here is no agent that has one.
        """
        event = request.event
        run = gateway_pb2.Run(
            run_id=event.event_id, event_id=event.event_id, status=gateway_pb2.RUN_STATUS_ACCEPTED
        )
        await context.write(gateway_pb2.DispatchResponse(accepted=run))
        run_request = run_pb2.RunRequest(runner_id="bare")
        run_request.context.run_id = run.run_id
        run_request.context.input.CopyFrom(event.input)
        run_request.context.config_json = event.data_json
        call = self._runner.Run(run_request)
        while isinstance(frame := await call.read(), run_pb2.RunResponse):
            for results in _end_apart(frame):
                batch = gateway_pb2.ResultBatch(results=results)
                await context.write(gateway_pb2.DispatchResponse(results=batch))
        run.status = gateway_pb2.RUN_STATUS_COMPLETED
        await context.write(gateway_pb2.DispatchResponse(ended=run))


def _end_apart(frame: run_pb2.RunResponse) -> list[Any]:
    if len(frame.results) > 1 and frame.results[-1].HasField("run_completed"):
        return [frame.results[:-1], frame.results[-1:]]
    return [frame.results]


async def _main(address: str, runner_address: str) -> None:
    async with open_channel(runner_address) as runner:
        server = grpc.aio.server(options=OPTIONS)
        run_pb2_grpc.add_RunServiceServicer_to_server(BareRelay(runner), server)
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(BareGateway(runner), server)
        await serve(server, address)


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], sys.argv[2]))
