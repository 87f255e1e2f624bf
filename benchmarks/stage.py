"""The stage: everything that scenarios measure, running side by side."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import grpc
from runmesh.v1 import discovery_pb2, discovery_pb2_grpc

from benchmarks.floors.runner import PLUGIN_ID, RUNNER_ID
from benchmarks.floors.transport import open_channel
from benchmarks.job import Job
from benchmarks.processes import HostProcess, running, running_host, wait_until_served
from benchmarks.ways import BareGatewayWay, HostWay, Metadata, RelayWay

_PLUGINS = Path(__file__).parent / "plugins"
_ECHO = "plugin:runmesh/echo/default"
_CLOCK = "plugin:benchmarks/clock/default"
_CALLER = "plugin:benchmarks/caller/default"
# Calls are measured, not how they are held back.
_LIMITS = {"host_calls_per_second": 1e6, "host_calls_burst": 1_000_000}
_READY_SECONDS = 10.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The ways that are compared.

    Attributes:
        host: The host's process.
        echo: Through the host to the shipped runner.
        clock: Through the host to a runner, made with the SDK, that tells the time.
        foreign: Through the host to a runner made without the SDK, which sends one result a frame.
        relay: Through a bare relay to that same runner.
        gateway: Through a bare relay to that same runner, in the frames of a host.
        folder: For what else a scenario runs.
    """

    host: HostProcess
    echo: HostWay
    clock: HostWay
    foreign: HostWay
    relay: RelayWay
    gateway: BareGatewayWay
    folder: Path


@asynccontextmanager
async def standing() -> AsyncIterator[Stage]:
    """Starts everything, and ends it."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runmesh-bench-")))
        runner, relay = f"unix:{folder}/runner.sock", f"unix:{folder}/relay.sock"
        bare = ("benchmarks.floors.runner", runner)
        await stack.enter_async_context(running("runner", *bare, folder=folder))
        passing = ("benchmarks.floors.relay", relay, runner)
        relaying = await stack.enter_async_context(running("relay", *passing, folder=folder))
        host = await stack.enter_async_context(
            running_host(
                folder, plugins=_PLUGINS, runners=[f"{PLUGIN_ID}={runner}"], limits=_LIMITS
            )
        )
        to_relay = await stack.enter_async_context(open_channel(relay))
        to_host = await stack.enter_async_context(open_channel(host.address))
        metadata = (("authorization", f"Bearer {host.api_key}"),)
        await wait_until_served(relaying, relay)
        await _wait_for_runners(host, to_host, metadata)

        def way(runner_id: str, *, bare: bool = False) -> HostWay:
            config_of = Job.bare_config if bare else Job.plugin_config
            return HostWay(to_host, metadata=metadata, runner_id=runner_id, config_of=config_of)

        yield Stage(
            host=host,
            echo=way(_ECHO),
            clock=way(_CLOCK),
            foreign=way(RUNNER_ID, bare=True),
            relay=RelayWay(to_relay),
            gateway=BareGatewayWay(to_relay),
            folder=folder,
        )


async def _wait_for_runners(
    host: HostProcess, channel: grpc.aio.Channel, metadata: Metadata
) -> None:
    """Waits until the host has found every runner that scenarios use."""
    discovery = discovery_pb2_grpc.DiscoveryServiceStub(channel)
    missing = {_ECHO, _CLOCK, _CALLER, RUNNER_ID}
    deadline = monotonic() + _READY_SECONDS
    while missing:
        if monotonic() > deadline:
            raise host.program.fault(f"did not find {', '.join(sorted(missing))}")
        answer = await discovery.ListRunners(discovery_pb2.ListRunnersRequest(), metadata=metadata)
        missing -= {manifest.id for manifest in answer.runners}
        await asyncio.sleep(_POLL_SECONDS)
