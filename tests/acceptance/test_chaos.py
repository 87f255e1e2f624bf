"""Ten plugins, six of them at their worst: the other four notice nothing, and nothing stays."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from runmesh.v1 import discovery_pb2, gateway_pb2

from benchmarks.misbehaving import BAD, GOOD, write_bad, write_good
from tests.integration.host.calls import Caller, calling, message
from tests.integration.host.host_process import HostProcess
from tests.integration.host.processes import Process, descendants
from tests.integration.host.waiting import eventually

pytestmark = pytest.mark.timeout(300)

RUNS = 1_000
CALLERS = 4
CONFIG = "agents:\n" + "".join(
    f'- {{id: {plugin.partition("/")[2]}, runner_id: "plugin:{plugin}/default"}}\n'
    for plugin in GOOD
)
# What is seen of each that misbehaves, once it does.
SEEN = {
    "acme/crashes": "no licence found",
    "acme/hangs": "",
    "acme/floods": "",
    "acme/ignores": "",
    "acme/leaks": "was killed: over its memory limit",
    "acme/freezes": "its health check is not answered",
}


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[HostProcess]:
    """A host with the four plugins that do well."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    write_good(plugins)
    with HostProcess(tmp_path / "data", config=CONFIG, plugins=plugins) as host:
        yield host


async def run_many(caller: Caller, count: int) -> list[float]:
    """Has the four plugins answer so many runs; returns how long each took, in seconds."""
    numbers = iter(range(count))
    took: list[float] = []

    async def call() -> None:
        for number in numbers:
            began = time.perf_counter()
            agent = GOOD[number % len(GOOD)].partition("/")[2]
            answer = await caller.dispatch(message(f"text {number}"), agent)
            took.append(time.perf_counter() - began)
            assert answer.ended.status == gateway_pb2.RUN_STATUS_COMPLETED, answer.ended
            assert answer.text == f"text {number}"

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    return sorted(took)


async def listed(caller: Caller) -> dict[str, discovery_pb2.RunnerInstance]:
    answer = await caller.discovery.ListRunners(
        discovery_pb2.ListRunnersRequest(), metadata=caller.metadata
    )
    return {each.plugin_id: each for each in answer.instances}


async def is_seen(caller: Caller, plugin_id: str, words: str, seen: set[str]) -> bool:
    """Whether it was ever listed with these words; they go when it is started again."""
    for each in (await listed(caller)).values():
        seen.update({f"{each.plugin_id} {each.reason}"})
    return any(each.startswith(f"{plugin_id} ") and words in each for each in seen)


async def test_six_plugins_at_their_worst_disturb_no_other(
    host: HostProcess, tmp_path: Path
) -> None:
    async with calling(host.addresses["grpc"], host.key) as caller:
        await run_many(caller, 100)
        quiet = await run_many(caller, RUNS)

        write_bad(tmp_path / "plugins")
        await eventually(partial(is_seen, caller, "acme/crashes", "no licence", set()))
        seen: set[str] = set()
        answering = asyncio.create_task(run_many(caller, RUNS))
        for plugin_id, words in SEEN.items():
            await eventually(partial(is_seen, caller, plugin_id, words, seen), seconds=60)
        chaos = await answering
        # The floods and the leaks go on for longer than a thousand runs take.
        chaos = sorted(chaos + await run_many(caller, RUNS))

        instances = await listed(caller)
        assert all(instances[each].state == discovery_pb2.INSTANCE_STATE_SERVING for each in GOOD)
        assert all(instances[each].restarts == 0 for each in GOOD)
        assert set(BAD) <= set(instances)

    # The benchmarks hold it to twice: here other tests may run beside, and begin and end anywhere.
    assert chaos[len(chaos) * 99 // 100] < 6 * quiet[len(quiet) * 99 // 100] + 0.5

    left = descendants(host.pid)
    commands = [each.command for each in left if each.is_alive]
    assert len(commands) > 2 * len(GOOD)
    host.kill()
    await eventually(lambda: not _alive(left), seconds=15)


def _alive(processes: frozenset[Process]) -> list[Process]:
    return [each for each in processes if each.is_alive]
