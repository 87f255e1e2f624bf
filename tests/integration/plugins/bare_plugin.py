"""A plugin of the smallest kind, without any SDK: the contract's services where it is told.

What it does wrong is chosen by its arguments, each `NAME` or `NAME=VALUE`.
"""

# The contract names the methods, and what they are given.
# ruff: noqa: ARG002, N802

import asyncio
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from runmesh.v1 import (
    discovery_pb2,
    discovery_pb2_grpc,
    manifest_pb2,
    result_pb2,
    run_pb2,
    run_pb2_grpc,
    types_pb2,
)

WRONG = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
PLUGIN_ID = WRONG.get("plugin_id", os.environ.get("RUNMESH_PLUGIN_ID", "acme/static"))

Context = grpc.aio.ServicerContext[Any, Any]


def manifest(runner: str, *, name: str | None = None) -> manifest_pb2.RunnerManifest:
    """The manifest of one of its runners."""
    return manifest_pb2.RunnerManifest(
        id=f"plugin:{PLUGIN_ID}/{runner}",
        name=name or runner,
        label=types_pb2.LocalizedText(text={"en_US": runner}),
        protocol_version="1",
        version="1.0.0",
    )


def write_settings(settings_json: str) -> None:
    """Keeps what came with the handshake."""
    Path(WRONG["settings_file"]).write_text(settings_json, "utf-8")


class Discovery(discovery_pb2_grpc.DiscoveryServiceServicer):
    """Says who it is, or somebody else."""

    def __init__(self) -> None:
        self._instance_id = uuid.uuid4().hex

    async def Handshake(
        self,
        request: discovery_pb2.HandshakeRequest,
        context: Context,
    ) -> discovery_pb2.HandshakeResponse:
        if "hang" in WRONG:
            await asyncio.sleep(3600)
        if "settings_file" in WRONG:
            write_settings(request.settings_json)
        return discovery_pb2.HandshakeResponse(
            protocol_version=WRONG.get("version", "1"),
            plugin_id=PLUGIN_ID,
            plugin_version="1.0.0",
            sdk_name="none",
            sdk_language="python",
            max_concurrent_runs=int(WRONG.get("max_runs", "0")),
            instance_id=self._instance_id,
        )

    async def ListRunners(
        self,
        request: discovery_pb2.ListRunnersRequest,
        context: Context,
    ) -> discovery_pb2.ListRunnersResponse:
        runners = [manifest("default")]
        if "also" in WRONG:
            runners.append(manifest(WRONG["also"]))
        if "bad_manifest" in WRONG:
            runners.append(manifest("bad", name="other"))
        if "unknown_enum" in WRONG:
            runners[0].permissions.models.append(manifest_pb2.ModelPermission.ValueType(77))
        return discovery_pb2.ListRunnersResponse(runners=runners)


class Run(run_pb2_grpc.RunServiceServicer):
    """Says one thing, and then nothing for as long as it is told."""

    async def Run(
        self,
        request: run_pb2.RunRequest,
        context: Context,
    ) -> AsyncIterator[run_pb2.RunResponse]:
        said = result_pb2.RunResult(run_id=request.context.run_id, sequence=1)
        said.message_delta.text = "hello"
        yield run_pb2.RunResponse(results=[said])
        await asyncio.sleep(float(WRONG.get("run_seconds", "3600")))


def write_first() -> None:
    """Writes to stdout what `first` names, before it serves."""
    for step in WRONG.get("first", "").split(","):
        if step == "banner":
            os.write(1, b"\xef\xbb\xbf\x1b[31mWelcome\x1b[0m to \xc4\xe3\xba\xc3\r\n")
        if step == "megabyte":
            for _ in range(10):
                os.write(1, (b"x" * 99 + b"\n") * 1000)


async def serve() -> None:
    """Serves until it is told to end."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    discovery_pb2_grpc.add_DiscoveryServiceServicer_to_server(Discovery(), server)
    run_pb2_grpc.add_RunServiceServicer_to_server(Run(), server)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    server.add_insecure_port(os.environ["RUNMESH_LISTEN"])
    await server.start()
    await checks.set("", health_pb2.HealthCheckResponse.SERVING)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    tasks = []

    def on_signal(do: Callable[[], None]) -> None:
        loop.add_signal_handler(signal.SIGUSR1, do)

    if "drain" in WRONG:
        on_signal(lambda: tasks.append(asyncio.ensure_future(checks.enter_graceful_shutdown())))
    if "deaf" in WRONG:
        # Stops listening, and lives on.
        on_signal(lambda: tasks.append(asyncio.ensure_future(server.stop(None))))
    if "busy" in WRONG:
        # Holds up its loop, as careless code does.
        on_signal(lambda: time.sleep(float(WRONG["busy"])))
    await ended.wait()
    await server.stop(0.2)


if __name__ == "__main__":
    write_first()
    asyncio.run(serve())
