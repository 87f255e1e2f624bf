"""Many runs that are started and cancelled at random moments: nothing of them is left.

`RUNMESH_MANY_RUNS` says how many; the promise is kept for ten thousand, which take a minute.
"""

import asyncio
import gc
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runmesh.v1 import run_pb2

from host_service.agents.directory import AgentDirectory
from host_service.errors import Overloaded
from host_service.limits import Limits
from host_service.registry.dialled import DialledRun
from host_service.registry.instance import Instance
from host_service.runs.admission import Place
from host_service.runs.call import RunnerCall
from host_service.runs.delivery import Delivery
from host_service.runs.log import Reader
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.run import ActiveRun
from host_service.runs.services import RunServices
from host_service.runs.sessions import Turn
from host_service.runs.steering import SteeredItem, SteeringBox
from stores import Stores
from stores.records import RunQuery, RunStatus
from tests.unit.runs.active import save
from tests.unit.runs.desk import said
from tests.unit.runs.runner import END, ServeScript
from tests.unit.runs.samples import a_delta, an_agent
from tests.unit.runs.test_follow_ups import check_idle

RUNS = int(os.environ.get("RUNMESH_MANY_RUNS", "1200"))
AT_ONCE = 150
# What caches and the like may grow by, in blocks of Python's own memory.
_BLOCKS = 12_000
#: What belongs to one run, and must be gone with it.
OF_A_RUN = (
    ActiveRun, RunnerCall, DialledRun, Delivery, Reader, Place, Turn, SteeringBox, SteeredItem
)  # fmt: skip


@pytest.fixture
def limits() -> Limits:
    return replace(Limits(), active_runs=60, waiting_runs=400, interrupt_grace_seconds=0.05)


async def moody(request: run_pb2.RunRequest) -> AsyncIterator[dict[str, Any]]:
    """Say something; then end soon, late, or never."""
    mood = random.Random(request.context.run_id)
    yield {"message_delta": a_delta("x")}
    await asyncio.sleep(mood.choice([0, 0.001, 0.01, 0.05, 3600]))
    yield {"message_delta": a_delta("y")}
    yield END


def left_over() -> Counter[str]:
    """Return how many of what belongs to runs there are."""
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects() if type(each) in OF_A_RUN)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def quiet(tasks: int) -> None:
    """Return once no more tasks are there than were before."""
    async with asyncio.timeout(10):
        while len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110 - tasks tell nobody that they end
            await asyncio.sleep(0.01)


class Crowd:
    """Callers who start runs, read some of them, and cancel them at random moments."""

    def __init__(self, orchestrator: Orchestrator, *, follow_ups: list[str]) -> None:
        self._orchestrator = orchestrator
        self._follow_ups = follow_ups
        self._mood = random.Random(7)
        self.refused = 0

    async def come(self, first: int, count: int) -> None:
        """Start so many runs, a part of them at once, and see each to its end."""
        some = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with some:
                await self._run(number)

        await asyncio.gather(*(one(number) for number in range(first, first + count)))

    async def _run(self, number: int) -> None:
        mood = self._mood
        event = said(str(number), room=str(number % 40))
        starting = asyncio.create_task(
            self._orchestrator.start(
                event,
                agent_id="helper",
                follow_up=mood.choice(self._follow_ups),
                with_reader=mood.random() < 0.5,
                ends_with_caller=True,
            )
        )
        if mood.random() < 0.2:
            # A caller that leaves before it has its answer.
            await asyncio.sleep(mood.random() * 0.005)
            starting.cancel()
        await asyncio.wait([starting])
        if starting.cancelled():
            return
        if isinstance(starting.exception(), Overloaded):
            self.refused += 1
            return
        started = starting.result()
        await asyncio.sleep(mood.choice([0, 0.001, 0.005, 0.02, 0.04]))
        if started.reader is not None:
            started.reader.close()
        record = await asyncio.wait_for(
            self._orchestrator.cancel(started.own_run_id, "at random"), 30
        )
        assert record.status.is_terminal


@pytest.mark.parametrize(
    ("about", "follow_ups"),
    [
        ({}, ["parallel"]),
        ({"max_runs": 20, "interrupt": True}, ["", "queue", "interrupt"]),
        (
            {"stateful_session": True, "steering": True, "interrupt": True},
            ["queue", "steer", "interrupt"],
        ),
    ],
    ids=["plain", "limited", "stateful"],
)
async def test_nothing_is_left_of_runs_that_are_cancelled_at_random_moments(
    orchestrator: Orchestrator,
    serving: ServeScript,
    services: RunServices,
    stores: Stores,
    directory: AgentDirectory,
    about: dict[str, Any],
    follow_ups: list[str],
) -> None:
    await save(directory, an_agent())
    runners = [(await serving(moody, **about))[0] for _ in range(2)]
    crowd = Crowd(orchestrator, follow_ups=follow_ups)
    # What is made once, such as connections, is made by the first.
    await crowd.come(0, 50)
    await check_idle(orchestrator, services)
    await quiet(len(asyncio.all_tasks()))
    await asyncio.sleep(0.3)
    tasks, files, objects = len(asyncio.all_tasks()), open_files(), left_over()
    assert not objects
    blocks = sys.getallocatedblocks()
    await crowd.come(50, RUNS // 3)
    await check_idle(orchestrator, services)
    await quiet(tasks)
    for runner in runners:
        # What the runners themselves remember for tests.
        runner.requests.clear()
        runner.interrupts.clear()
    assert open_files() <= files + 2
    assert left_over() == objects
    # However many runs there were.
    assert sys.getallocatedblocks() - blocks < _BLOCKS
    for instance in services.registry.instances():
        assert instance.idle.is_set()
    await stores.journal.flush()
    open_runs = await stores.ledger.list(
        RunQuery(statuses=(RunStatus.ACCEPTED, RunStatus.QUEUED, RunStatus.RUNNING))
    )
    assert open_runs.items == ()
    assert crowd.refused < RUNS // 3
    assert not [each for each in gc.get_objects() if type(each) is Instance and each.active_runs]
