"""Four plugins among six at their worst: how much longer their slowest runs take."""

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from runmesh.v1 import discovery_pb2, discovery_pb2_grpc

from benchmarks.floors.transport import open_channel
from benchmarks.job import Job
from benchmarks.loads import complete
from benchmarks.misbehaving import BAD, GOOD, write_bad, write_good
from benchmarks.processes import HostProcess, running_host
from benchmarks.report import Row, at_most
from benchmarks.rounds import Plan
from benchmarks.spread import percentile
from benchmarks.stage import Stage
from benchmarks.ways import HostWay

_RUNS = 1_000
_CALLERS = 4
_GOAL = at_most(2.0)
_JOB = Job(repeat=3)
# A plugin that comes is seen within a second, and has its say within some more.
_WAIT_SECONDS = 4.0
_POLL_SECONDS = 0.1


async def measure(stage: Stage, plan: Plan) -> Sequence[Row]:
    """Starts hosts one after another; on each, a quiet thousand runs and then a disturbed one."""
    quiet, disturbed = [], []
    for _ in range(plan.rounds):
        with TemporaryDirectory(dir=stage.folder) as folder:
            before, after = await _one_host(Path(folder))
        quiet.append(before)
        disturbed.append(after)
    what = f"99 of 100 runs take, {len(GOOD)} plugins among {len(BAD)} at their worst; alone"
    return [Row(what, "ms", disturbed, quiet, _GOAL)]


async def _one_host(folder: Path) -> tuple[float, float]:
    plugins = folder / "plugins"
    plugins.mkdir()
    write_good(plugins)
    async with running_host(folder, plugins=plugins) as host, open_channel(host.address) as channel:
        metadata = (("authorization", f"Bearer {host.api_key}"),)
        ways = [
            HostWay(
                channel,
                metadata=metadata,
                runner_id=f"plugin:{plugin_id}/default",
                config_of=Job.plugin_config,
            )
            for plugin_id in GOOD
        ]
        for way in ways:
            await way.prepare(_JOB)
        await _slowest(ways)
        quiet = await _slowest(ways)
        write_bad(plugins)
        discovery = discovery_pb2_grpc.DiscoveryServiceStub(channel)
        await _wait_for_all(host, discovery, metadata)
        return quiet, await _slowest(ways)


async def _wait_for_all(
    host: HostProcess,
    discovery: discovery_pb2_grpc.DiscoveryServiceStub,
    metadata: Sequence[tuple[str, str]],
) -> None:
    while True:
        host.program.check()
        answer = await discovery.ListRunners(discovery_pb2.ListRunnersRequest(), metadata=metadata)
        if set(BAD) <= {each.plugin_id for each in answer.instances}:
            break
        await asyncio.sleep(_POLL_SECONDS)
    await asyncio.sleep(_WAIT_SECONDS)


async def _slowest(ways: Sequence[HostWay]) -> float:
    """Returns how long the slowest of a hundred runs takes, in milliseconds; all must succeed."""
    turns = itertools.islice(itertools.cycle(ways), _RUNS)
    took: list[float] = []

    async def call() -> None:
        for way in turns:
            timing = await complete(way, _JOB)
            took.append((timing.ended - timing.called) * 1000)

    await asyncio.gather(*(call() for _ in range(_CALLERS)))
    return percentile(took, 0.99)
