"""Tests of `host_service.runs.recovery`: what a lost host leaves is ended, or started, once."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from runmesh.v1 import result_pb2

from host_service.agents.directory import AgentDirectory
from host_service.limits import Limits
from host_service.runs.entry import session_key
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.recovery import Recovery
from host_service.runs.services import RunServices
from stores import Stores
from stores.records import Checkpoint, RunEnd, RunFacts, RunStatus
from tests.unit.runs.active import Conversation, a_run_record, begun, save
from tests.unit.runs.desk import Desk, said
from tests.unit.runs.runner import ServeScript
from tests.unit.runs.samples import NOON, a_delta, an_agent, an_event
from tests.unit.runs.test_delivery import CALL, message

NOW = datetime(2026, 3, 1, 13, tzinfo=UTC)


class Clock:
    """Tells the time it is set to."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def recovery(
    stores: Stores,
    services: RunServices,
    orchestrator: Orchestrator,
    limits: Limits,
    clock: Clock,
) -> Recovery:
    """Gives the next start of the host, which has the lease."""
    recovery = Recovery(
        stores=stores,
        orchestrator=orchestrator,
        actions=services.actions,
        host_id="host",
        incarnation="start-2",
        limits=limits,
        clock=clock,
    )
    await recovery.register()
    return recovery


async def lost(run: Conversation, stores: Stores) -> None:
    """Lose the host in the middle of a run: only what the ledger has is left."""
    run.delivery._checkpoints._take()
    await stores.journal.flush()
    run._orchestrator._active.clear()


async def ended(stores: Stores, after: int = 0) -> list[result_pb2.RunResult]:
    return [
        result_pb2.RunResult.FromString(record.payload)
        for record in await stores.ledger.results("run-1", after_sequence=after)
    ]


async def test_run_under_way_ends_as_restarted_with_everything_that_was_shown(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, recovery: Recovery
) -> None:
    run = await begun(stores, services, orchestrator)
    await run.sends(message("before", id="a"), CALL)
    await run.sends(a_delta("Once upon ", reasoning="hm"))
    run.delivery._checkpoints._take()
    await run.sends(a_delta("a time 你", reasoning="m"))
    run.delivery._checkpoints._take()
    await run.sends(a_delta("!"))
    await lost(run, stores)
    assert await recovery.recover() == 1
    record = await stores.ledger.get("run-1")
    assert record is not None
    assert record.status is RunStatus.FAILED
    assert record.failure is not None
    assert (record.failure.code, record.failure.retryable) == ("host.restarted", True)
    completed, failed = await ended(stores, after=2)
    assert completed.message_completed.incomplete
    whole = completed.message_completed.message
    assert [part.text for part in whole.parts] == ["Once upon a time 你!"]
    assert whole.reasoning_text == "hmm"
    assert failed.run_failed.code == "host.restarted"
    items = (await stores.transcript.page(an_event().conversation_key)).items
    assert [(item.text, item.incomplete) for item in items] == [
        ("Once upon a time 你!", True),
        ("before", False),
        ("hello", False),
    ]
    assert await stores.ledger.checkpoints("run-1") == []
    (entry,) = [each for each in await stores.events.entries("run-1") if each.kind == "run_failed"]
    assert entry.sequence == failed.sequence


async def test_numbers_after_a_crash_stand_above_every_number_that_may_have_been_shown(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, recovery: Recovery
) -> None:
    run = await begun(stores, services, orchestrator)
    await run.sends(CALL)
    await run.sends(*[a_delta("x") for _ in range(5000)])
    shown = run.delivery.delivered
    await lost(run, stores)
    await recovery.recover()
    completed, failed = await ended(stores, after=1)
    assert shown < completed.sequence < failed.sequence
    # Together they cover what the deltas had.
    assert completed.first_sequence == 2
    assert failed.first_sequence == completed.sequence + 1
    record = await stores.ledger.get("run-1")
    assert record is not None
    assert record.last_sequence == failed.sequence


async def test_messages_side_by_side_are_each_made_whole(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, recovery: Recovery
) -> None:
    run = await begun(stores, services, orchestrator)
    await run.sends(a_delta("A1", id="a"), a_delta("B1", id="b"))
    run.delivery._checkpoints._take()
    await run.sends(a_delta("A2", id="a"), message("B1 whole", id="b"))
    await lost(run, stores)
    await recovery.recover()
    completed, _ = await ended(stores, after=4)
    assert completed.message_completed.message.message_id == "a"
    assert completed.message_completed.message.parts[0].text == "A1A2"


async def test_run_that_had_said_nothing_ends_with_its_end_alone(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, recovery: Recovery
) -> None:
    await lost(await begun(stores, services, orchestrator), stores)
    await recovery.recover()
    (failed,) = await ended(stores)
    assert failed.run_failed.code == "host.restarted"
    assert failed.sequence > 4096


async def test_lost_run_is_ended_once(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, recovery: Recovery
) -> None:
    await lost(await begun(stores, services, orchestrator), stores)
    assert [await recovery.recover(), await recovery.recover()] == [1, 0]
    assert len(await ended(stores)) == 1


async def test_late_facts_of_the_lost_host_change_nothing(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, recovery: Recovery
) -> None:
    run = await begun(stores, services, orchestrator)
    await lost(run, stores)
    await recovery.recover()
    before = await stores.ledger.get("run-1")
    late = RunFacts(run_id="run-1", host_incarnation="start-1", reserved_sequence=10**6)
    with pytest.raises(Exception, match="has ended"):
        await stores.ledger.record(late)
    assert await stores.ledger.get("run-1") == before


async def test_runs_of_a_host_that_renews_its_lease_are_left_alone(
    stores: Stores,
    services: RunServices,
    orchestrator: Orchestrator,
    recovery: Recovery,
    clock: Clock,
) -> None:
    lease = NOW + timedelta(seconds=15)
    await stores.hosts.register("other", "theirs", lease)
    await begun(stores, services, orchestrator, host_id="other", host_incarnation="theirs")
    assert await recovery.recover() == 0
    clock.now = lease + timedelta(seconds=1)
    assert await recovery.recover() == 1


async def test_run_that_was_waiting_is_started_here(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, recovery: Recovery
) -> None:
    event = an_event()
    record = a_run_record(event)
    await stores.ledger.accept(event.record("run-1"), record, event.transcript_item("run-1"))
    assert await recovery.recover() == 1
    assert set(orchestrator.active) == {"run-1"}
    run = orchestrator.active["run-1"]
    assert run.event.envelope == event.envelope
    assert run.agent.id == "helper"
    taken = await stores.ledger.get("run-1")
    assert taken is not None
    assert (taken.host_incarnation, taken.failure) == ("start-2", None)
    # It is this host's now, and nobody starts it again.
    assert await recovery.recover() == 0
    await orchestrator.drain(0, asyncio.Event())


async def wait_on_a_lost_host(
    stores: Stores, services: RunServices, *texts: str, **about: Any
) -> None:
    """Accept messages one second after the other, on a start of the host that is gone."""
    for number, text in enumerate(texts):
        event = said(text)
        record = a_run_record(
            event,
            run_id=f"run-{text}",
            session_key=session_key(event, an_agent()),
            created_at=NOON + timedelta(seconds=number),
            **about,
        )
        await stores.ledger.accept(
            event.record(record.run_id), record, event.transcript_item(record.run_id)
        )


async def test_runs_that_waited_for_their_session_go_in_the_order_in_which_they_came(
    stores: Stores,
    services: RunServices,
    orchestrator: Orchestrator,
    recovery: Recovery,
    serving: ServeScript,
    directory: AgentDirectory,
) -> None:
    desk = Desk()
    orchestrator._entry._services = replace(services, host_incarnation="start-2")
    await save(directory, an_agent())
    await serving(desk.script, stateful_session=True)
    # In the order of their ids they would go another way.
    await wait_on_a_lost_host(stores, services, *"zbya")
    assert await recovery.recover() == 4
    # What comes now is behind them.
    new = await orchestrator.start(said("new"), agent_id="helper")
    desk.let_go(*"zbya", "new")
    run = orchestrator.active[new.run.run_id]
    assert (await asyncio.wait_for(asyncio.shield(run.ended), 10)).status is RunStatus.COMPLETED
    assert desk.ended == [*"zbya", "new"]
    assert set(desk.most.values()) == {1}


async def test_message_that_was_handed_to_a_run_of_the_lost_host_runs_by_itself_once(
    stores: Stores,
    services: RunServices,
    orchestrator: Orchestrator,
    recovery: Recovery,
    serving: ServeScript,
) -> None:
    desk = Desk(waits=False)
    orchestrator._entry._services = replace(services, host_incarnation="start-2")
    await serving(desk.script, steering=True)
    await wait_on_a_lost_host(stores, services, "a", status=RunStatus.RUNNING, started_at=NOON)
    await wait_on_a_lost_host(stores, services, "b", "c", steered_into="run-a")
    # One was taken up, and that was stored.
    await stores.ledger.finish(
        RunEnd(run_id="run-c", status=RunStatus.COMPLETED, ended_at=NOON, last_sequence=1)
    )
    assert await recovery.recover() == 2
    await asyncio.wait_for(asyncio.shield(orchestrator.active["run-b"].ended), 10)
    record = await stores.ledger.get("run-b")
    assert record is not None
    assert (record.status, record.steered_into) == (RunStatus.COMPLETED, None)
    assert desk.began == ["b"]
    assert await recovery.recover() == 0
    first, taken = await stores.ledger.get("run-a"), await stores.ledger.get("run-c")
    assert first is not None
    assert first.failure is not None
    assert first.failure.code == "host.restarted"
    assert taken is not None
    assert taken.steered_into == "run-a"


async def test_session_is_taken_up_by_one_of_two_hosts(
    stores: Stores,
    services: RunServices,
    orchestrator: Orchestrator,
    recovery: Recovery,
    limits: Limits,
    clock: Clock,
) -> None:
    await wait_on_a_lost_host(stores, services, *"abcd")
    beside = Recovery(
        stores=stores,
        orchestrator=orchestrator,
        actions=services.actions,
        host_id="second",
        incarnation="start-9",
        limits=limits,
        clock=clock,
    )
    await beside.register()
    await asyncio.gather(recovery.recover(), beside.recover())
    owners = {
        record.host_id
        for text in "abcd"
        if (record := await stores.ledger.get(f"run-{text}")) is not None
    }
    assert len(owners) == 1
    await orchestrator.drain(0, asyncio.Event())


async def test_host_that_is_shutting_down_takes_nothing_up(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, recovery: Recovery
) -> None:
    await wait_on_a_lost_host(stores, services, "a")
    await orchestrator.drain(0, asyncio.Event())
    await recovery.recover()
    assert not orchestrator.active
    record = await stores.ledger.get("run-a")
    assert record is not None
    assert record.status is RunStatus.ACCEPTED


@pytest.mark.parametrize("status", [RunStatus.ACCEPTED, RunStatus.RUNNING])
async def test_replay_of_a_lost_host_ends_and_says_nothing_in_the_conversation(
    stores: Stores,
    orchestrator: Orchestrator,
    recovery: Recovery,
    status: RunStatus,
) -> None:
    event = an_event()
    original = a_run_record(event, run_id="run-0")
    await stores.ledger.accept(event.record("run-0"), original, event.transcript_item("run-0"))
    await stores.ledger.finish(
        RunEnd(run_id="run-0", status=RunStatus.COMPLETED, ended_at=NOON, last_sequence=1)
    )
    await stores.ledger.replay(a_run_record(event, status=status, replay_of="run-0"))
    shown = Checkpoint("run-1", "m", "half an answ", "", 3, NOON)
    await stores.ledger.record(RunFacts(run_id="run-1", checkpoints=(shown,)))
    assert await recovery.recover() == 1
    assert not orchestrator.active
    replay = await stores.ledger.get("run-1")
    assert replay is not None
    assert replay.failure is not None
    assert replay.failure.code == "host.restarted"
    kinds = [result.kind for result in await stores.ledger.results("run-1")]
    assert kinds == ["message_completed", "run_failed"]
    assert len((await stores.transcript.page(event.conversation_key)).items) == 1
