"""A runner in this process: a real server that sends what a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio
from runmesh.v1 import manifest_pb2, result_pb2, run_pb2, run_pb2_grpc

from host_service.registry import FoundBy, Instance, InstanceState, Introduction, Registry
from host_service.registry.channel import SERVER_OPTIONS
from tests.unit.runs.samples import RUNNER

#: What a runner does with a run: yields payloads by name, to be sent one a frame.
Script = Callable[[run_pb2.RunRequest], AsyncIterator[dict[str, Any]]]

#: Serves a script as another instance of the runner; see the fixture `serving`.
ServeScript = Callable[..., Awaitable[tuple["Runner", Instance]]]

END = {"run_completed": result_pb2.RunCompleted(finish_reason="stop")}


class Runner(run_pb2_grpc.RunServiceServicer):
    """Serves one runner by a script; tells what became of its calls.

    Attributes:
        requests: The runs it was called with.
        interrupts: The reasons it was interrupted for.
        called: Set once it is called.
        left: Set once nobody reads on.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[run_pb2.RunRequest] = []
        self.interrupts: list[str] = []
        self.called, self.left, self.interrupted = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def Run(self, request: Any, _context: Any) -> Any:  # noqa: N802 - gRPC's name
        self.requests.append(request)
        self.called.set()
        sequence = 0
        try:
            async for payload in self._script(request):
                sequence += 1
                fields = {"run_id": request.context.run_id, "sequence": sequence, **payload}
                yield run_pb2.RunResponse(results=[result_pb2.RunResult(**fields)])
        finally:
            self.left.set()

    async def Interrupt(self, request: Any, _context: Any) -> Any:  # noqa: N802 - gRPC's name
        self.interrupts.append(request.reason)
        self.interrupted.set()
        return run_pb2.InterruptResponse(was_active=True)


async def serve(runner: Runner, address: str) -> grpc.aio.Server:
    """Serve a runner on an address."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    run_pb2_grpc.add_RunServiceServicer_to_server(runner, server)
    server.add_insecure_port(address)
    await server.start()
    return server


def introduce(
    registry: Registry, address: str, *, max_runs: int = 0, **capabilities: bool
) -> Instance:
    """Let the registry know an instance at an address, as a handshake leaves it."""
    instance = registry.add(plugin_id="acme/desk", found_by=FoundBy.STATIC, address=address)
    manifest = manifest_pb2.RunnerManifest(
        id=RUNNER,
        version="1",
        capabilities=manifest_pb2.RunnerCapabilities(streaming=True, **capabilities),
    )
    instance.introduce(Introduction("i", "1", "", max_runs, {RUNNER: manifest}))
    registry._catalogue.learn(instance.plugin_id, registry.instances())
    registry.mark(instance, InstanceState.SERVING)
    return instance
