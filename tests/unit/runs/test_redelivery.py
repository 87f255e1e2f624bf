"""Events that come again: recognised before they take anything, and whatever goes on."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runmesh.v1 import event_pb2

from host_service.agents.directory import AgentDirectory
from host_service.errors import AlreadyExists, HostError, NoBinding, Overloaded, Unavailable
from host_service.limits import Limits
from host_service.runs.admission import Admission
from host_service.runs.event import Event
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.services import RunServices
from stores import Stores, open_stores
from stores.errors import StoreUnavailable
from stores.ledger import Accepting
from stores.records import RunStatus
from tests.unit.runs.active import save
from tests.unit.runs.desk import Desk, said
from tests.unit.runs.runner import ServeScript
from tests.unit.runs.samples import an_agent
from tests.unit.runs.test_follow_ups import check_idle, start
from tests.unit.runs.test_run import outcome


@pytest.fixture
def limits() -> Limits:
    return replace(Limits(), active_runs=1, waiting_runs=2, instance_wait_seconds=5)


@pytest.fixture(autouse=True)
async def _agents(directory: AgentDirectory) -> None:
    await save(directory, an_agent())


@pytest.fixture
def desk() -> Desk:
    return Desk()


def other(event: Event) -> Event:
    """Return the same event with other content."""
    changed = event_pb2.EventEnvelope()
    changed.CopyFrom(event.envelope)
    return said(changed.event_id, type="message.edited")


async def test_redelivery_is_answered_while_the_line_is_full(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script)
    runs = [await start(orchestrator, said(text)) for text in "abc"]
    with pytest.raises(Overloaded):
        await start(orchestrator, said("d"))
    for text, run in zip("abc", runs, strict=True):
        again = await start(orchestrator, said(text))
        assert (again.duplicate, again.run.run_id) == (True, run.run.run_id)
        with pytest.raises(AlreadyExists):
            await start(orchestrator, other(said(text)))
    assert (orchestrator.admission.active, orchestrator.admission.waiting) == (1, 2)
    desk.let_go(*"abc")
    for run in runs:
        await outcome(run)
    await check_idle(orchestrator, services)


async def test_redelivery_takes_no_place_in_the_line_not_even_for_a_moment(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script)
    runs = [await start(orchestrator, said(text)) for text in "ab"]
    # One place is left in the line: whatever comes again beside it, the new event gets it.
    *_, new = await asyncio.gather(
        *(start(orchestrator, said(text)) for text in "ab" * 5), start(orchestrator, said("c"))
    )
    assert not new.duplicate
    desk.let_go(*"abc")
    for run in (*runs, new):
        await outcome(run)
    await check_idle(orchestrator, services)


@pytest.mark.parametrize("before", [0, 2, 3], ids=["idle", "one place left", "full"])
async def test_ten_deliveries_at_once_are_one_run_or_none(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk, before: int
) -> None:
    await serving(desk.script)
    runs = [await start(orchestrator, said(f"before-{number}")) for number in range(before)]
    answers = await asyncio.gather(
        *(start(orchestrator, said("x")) for _ in range(10)),
        *(start(orchestrator, other(said("x"))) for _ in range(3)),
        return_exceptions=True,
    )
    same, changed = answers[:10], answers[10:]
    if before == 3:
        assert all(isinstance(each, Overloaded) for each in answers)
    else:
        started = [each for each in same if not isinstance(each, BaseException)]
        assert len(started) == 10
        assert len({each.run.run_id for each in started}) == 1
        assert [each.duplicate for each in started].count(False) == 1
        assert all(isinstance(each, AlreadyExists) for each in changed)
        runs.append(next(each for each in started if not each.duplicate))
    desk.let_go("x", *(f"before-{number}" for number in range(before)))
    for run in runs:
        await outcome(run)
    assert desk.began.count("x") == (before < 3)
    await check_idle(orchestrator, services)


async def test_caller_of_the_first_delivery_may_leave_and_the_second_is_answered(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script)
    first = asyncio.create_task(start(orchestrator, said("a")))
    second = asyncio.create_task(start(orchestrator, said("a")))
    await asyncio.sleep(0)
    first.cancel()
    again = await second
    assert again.duplicate
    desk.let_go("a")
    run = orchestrator.active[again.run.run_id]
    assert (await run.ended).status is RunStatus.COMPLETED
    await check_idle(orchestrator, services)


class _FailsOnce:
    """A ledger whose first acceptance cannot be made durable."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger
        self._has_failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def accept(self, *records: Any, **about: Any) -> Accepting:
        if self._has_failed:
            accepting: Accepting = self._ledger.accept(*records, **about)
            return accepting
        self._has_failed = True
        failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        failed.set_exception(StoreUnavailable("the disk is full"))
        failed.exception()
        return Accepting(failed, failed)


async def test_second_delivery_is_tried_itself_when_the_first_could_not_be_stored(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script)
    orchestrator._stores = replace(
        orchestrator._stores,
        ledger=_FailsOnce(orchestrator._stores.ledger),
    )
    first, second = await asyncio.gather(
        start(orchestrator, said("a")), start(orchestrator, said("a")), return_exceptions=True
    )
    assert isinstance(first, Unavailable)
    assert not isinstance(second, BaseException)
    assert not second.duplicate
    desk.let_go("a")
    await outcome(second)
    assert desk.began == ["a"]
    await check_idle(orchestrator, services)


async def test_event_whose_agent_is_gone_is_answered_with_the_run_it_has(
    orchestrator: Orchestrator, serving: ServeScript, directory: AgentDirectory, desk: Desk
) -> None:
    await serving(desk.script)
    first = await start(orchestrator, said("a"))
    desk.let_go("a")
    _, record = await outcome(first)
    await directory.delete_agent("helper")
    with pytest.raises(HostError):
        await start(orchestrator, said("b"))
    for agent_id in ("helper", ""):
        again = await orchestrator.start(said("a"), agent_id=agent_id)
        assert (again.duplicate, again.run) == (True, record)
    with pytest.raises(NoBinding):
        await orchestrator.start(said("b"))


@pytest.fixture
async def second_host(
    stores: Stores,
    services: RunServices,
    directory: AgentDirectory,
    limits: Limits,
    tmp_path: Path,
) -> AsyncIterator[Orchestrator]:
    """Gives another host on the database of `stores`, with the same runner."""
    await stores.ping()
    beside = await open_stores(f"sqlite:///{tmp_path / 'stores.db'}")
    yield Orchestrator(
        stores=beside,
        directory=directory,
        services=replace(
            services, ledger=beside.ledger, host_id="second", host_incarnation="start-9"
        ),
        admission=Admission(active=limits.active_runs, waiting=limits.waiting_runs),
    )
    await beside.close()


async def test_same_event_at_two_hosts_at_once_is_one_run(
    orchestrator: Orchestrator, second_host: Orchestrator, serving: ServeScript, desk: Desk
) -> None:
    await serving(desk.script)
    for number in range(10):
        text = f"e{number}"
        answers = await asyncio.gather(
            *(start(host, said(text)) for host in (orchestrator, second_host) for _ in range(3))
        )
        assert len({each.run.run_id for each in answers}) == 1
        assert [each.duplicate for each in answers].count(False) == 1
        desk.let_go(text)
        (first,) = [each for each in answers if not each.duplicate]
        await outcome(first)
    assert sorted(desk.began) == sorted({f"e{number}" for number in range(10)})


async def test_redelivery_at_another_host_is_answered_while_its_line_is_full(
    orchestrator: Orchestrator, second_host: Orchestrator, serving: ServeScript, desk: Desk
) -> None:
    await serving(desk.script)
    first = await start(orchestrator, said("a"))
    full = [await start(second_host, said(text)) for text in "bcd"]
    again = await start(second_host, said("a"))
    assert (again.duplicate, again.run.run_id) == (True, first.run.run_id)
    desk.let_go(*"abcd")
    for run in (first, *full):
        await outcome(run)
