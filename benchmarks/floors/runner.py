"""A bare runner of the contract, without an SDK: `python -m benchmarks.floors.runner ADDRESS`.

What a run does is in its configuration, see `benchmarks.job`. It sends one result a frame, or what
waits together. A host takes it for any runner, so that it also stands for runners that somebody
else wrote.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from runmesh.v1 import discovery_pb2, discovery_pb2_grpc, manifest_pb2, run_pb2, run_pb2_grpc
from runmesh.v1.result_pb2 import RunResult
from runmesh.v1.types_pb2 import CHAT_ROLE_ASSISTANT, LocalizedText

from benchmarks.floors.transport import OPTIONS, serve
from benchmarks.job import Job

PLUGIN_ID = "benchmarks/bare"
RUNNER_ID = f"plugin:{PLUGIN_ID}/default"

# As many results as may wait in the SDK.
_WAITING = 512
_FIELDS = {
    "repeat": "integer",
    "size": "integer",
    "interval_seconds": "float",
    "delay_seconds": "float",
    "together": "boolean",
    "clock": "boolean",
}


class BareRunner(run_pb2_grpc.RunServiceServicer):
    """Streams pieces, then the whole message, then the end."""

    async def Run(self, request: run_pb2.RunRequest, context: Any) -> None:  # type: ignore[override] # noqa: N802
        """Does what the configuration asks for."""
        job = Job.from_config(json.loads(request.context.config_json))
        results = _author(job, request.context.run_id)
        if job.together:
            await _send_together(results, context)
        else:
            async for result in results:
                await context.write(run_pb2.RunResponse(results=(result,)))


async def _author(job: Job, run_id: str) -> AsyncIterator[RunResult]:
    """An agent's code: it yields its results one by one, since it waits for a model in between."""
    await asyncio.sleep(job.delay_seconds)
    piece = "x" * job.size
    for number in range(1, job.repeat + 1):
        result = RunResult(run_id=run_id, sequence=number)
        result.message_delta.text = str(time.monotonic_ns()) if job.clock else piece
        yield result
        if job.interval_seconds:
            await asyncio.sleep(job.interval_seconds)
    result = RunResult(run_id=run_id, sequence=job.repeat + 1)
    message = result.message_completed.message
    message.role = CHAT_ROLE_ASSISTANT
    message.parts.add(text=piece * job.repeat)
    yield result
    result = RunResult(run_id=run_id, sequence=job.repeat + 2)
    result.run_completed.finish_reason = "stop"
    yield result


async def _send_together(results: AsyncIterator[RunResult], context: Any) -> None:
    """Sends what waits whenever the last write is done; the first result goes at once."""
    waiting: list[RunResult] = []
    news, room = asyncio.Event(), asyncio.Event()
    idle = True

    async def produce() -> None:
        async for result in results:
            waiting.append(result)
            if idle:
                news.set()
                await asyncio.sleep(0)
            elif len(waiting) >= _WAITING:
                room.clear()
                await room.wait()
        news.set()

    producer = asyncio.create_task(produce())
    try:
        while waiting or not producer.done():
            if not waiting:
                idle = True
                await news.wait()
                idle = False
                news.clear()
            frame = run_pb2.RunResponse(results=waiting)
            waiting.clear()
            room.set()
            if frame.results:
                await context.write(frame)
    finally:
        producer.cancel()


class BareDiscovery(discovery_pb2_grpc.DiscoveryServiceServicer):
    """Says who is there."""

    async def Handshake(  # noqa: N802
        self, _request: discovery_pb2.HandshakeRequest, _context: Any
    ) -> discovery_pb2.HandshakeResponse:
        """Agrees on version 1."""
        return discovery_pb2.HandshakeResponse(
            protocol_version="1", plugin_id=PLUGIN_ID, plugin_version="1", instance_id="bare"
        )

    async def ListRunners(  # noqa: N802
        self, _request: discovery_pb2.ListRunnersRequest, _context: Any
    ) -> discovery_pb2.ListRunnersResponse:
        """Lists the one runner."""
        label = LocalizedText(text={"en_US": "Bare"})
        manifest = manifest_pb2.RunnerManifest(
            id=RUNNER_ID,
            name="default",
            label=label,
            protocol_version="1",
            version="1",
            capabilities=manifest_pb2.RunnerCapabilities(streaming=True),
            config_schema=[
                manifest_pb2.ConfigField(name=name, type=kind, label=label)
                for name, kind in _FIELDS.items()
            ],
        )
        return discovery_pb2.ListRunnersResponse(runners=[manifest])


async def _main(address: str) -> None:
    server = grpc.aio.server(options=OPTIONS)
    run_pb2_grpc.add_RunServiceServicer_to_server(BareRunner(), server)
    discovery_pb2_grpc.add_DiscoveryServiceServicer_to_server(BareDiscovery(), server)
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    await status.set("", health_pb2.HealthCheckResponse.SERVING)
    await serve(server, address)


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1]))
