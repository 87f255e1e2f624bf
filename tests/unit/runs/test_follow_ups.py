"""Runs of one session: in order, beside each other, interrupted, refused, or handed over."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from runmesh.v1 import event_pb2, run_pb2

from host_service.agents.directory import AgentDirectory
from host_service.authorization.policy import Allowance, WorkspacePolicy
from host_service.catalogue.shelf import Shelf
from host_service.errors import InvalidArgument, Overloaded, SessionBusy
from host_service.limits import Limits
from host_service.registry import InstanceState
from host_service.runs.event import Event
from host_service.runs.orchestrator import Orchestrator, Started
from host_service.runs.services import RunServices
from host_service.runs.steering import SteeredItem, SteeringBox
from stores import Stores
from stores.records import RunRecord, RunStatus
from tests.unit.runs.active import results_of, save
from tests.unit.runs.desk import Desk, Payloads, said
from tests.unit.runs.runner import ServeScript
from tests.unit.runs.samples import an_agent
from tests.unit.runs.test_run import outcome

POLICIES = ("queue", "parallel", "steer", "interrupt", "reject")


@pytest.fixture
def limits() -> Limits:
    return replace(
        Limits(), active_runs=3, waiting_runs=50, instance_wait_seconds=5, interrupt_grace_seconds=5
    )


@pytest.fixture(autouse=True)
async def _agents(directory: AgentDirectory) -> None:
    await save(
        directory,
        an_agent(),
        *(an_agent(id=policy, follow_up=policy) for policy in POLICIES),
    )


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def start(
    orchestrator: Orchestrator, event: Event, agent_id: str = "helper", follow_up: str = ""
) -> Started:
    return await orchestrator.start(event, agent_id=agent_id, follow_up=follow_up, with_reader=True)


async def ended(orchestrator: Orchestrator, started: Started) -> RunRecord:
    """Return a run once it has ended."""
    run = orchestrator.active.get(started.own_run_id)
    if run is not None:
        await asyncio.wait_for(asyncio.shield(run.ended), 10)
    record = await orchestrator.get(started.own_run_id)
    assert record is not None
    assert record.status.is_terminal
    return record


async def check_idle(orchestrator: Orchestrator, services: RunServices) -> None:
    """Fail unless nothing is left of any run."""
    while orchestrator.active:
        # A run that has ended is forgotten a moment later.
        await asyncio.wait_for(asyncio.shield(next(iter(orchestrator.active.values())).ended), 10)
        await asyncio.sleep(0)
    assert (orchestrator.admission.active, orchestrator.admission.waiting) == (0, 0)
    assert len(orchestrator.sessions) == len(orchestrator.deliveries) == 0
    assert len(services.tokens) == 0
    assert all(instance.active_runs == 0 for instance in services.registry.instances())


async def test_stateful_runs_of_a_session_go_one_at_a_time_in_the_order_they_came(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script, stateful_session=True)
    texts = [str(number) for number in range(8)]
    runs = [await start(orchestrator, said(text)) for text in texts]
    await desk.has_begun("0")
    waiting = await orchestrator.get(runs[1].run.run_id)
    assert waiting is not None
    assert waiting.status is RunStatus.QUEUED
    assert waiting.queued_at is not None
    # Those behind may go before those ahead do: they do not begin for it.
    desk.let_go(*reversed(texts))
    records = [(await outcome(run))[1] for run in runs]
    assert desk.began == desk.ended == texts
    assert set(desk.most.values()) == {1}
    assert {record.status for record in records} == {RunStatus.COMPLETED}
    for before, after in pairwise(records):
        assert before.ended_at is not None
        assert after.started_at is not None
        assert before.ended_at <= after.started_at
    await check_idle(orchestrator, services)


async def test_runs_of_other_runners_go_beside_each_other(
    orchestrator: Orchestrator, serving: ServeScript, desk: Desk
) -> None:
    await serving(desk.script)
    runs = [await start(orchestrator, said(text)) for text in "abc"]
    await desk.has_begun("a", "b", "c")
    assert set(desk.most.values()) == {3}
    desk.let_go(*"abc")
    for run in runs:
        await outcome(run)


async def test_session_stays_on_its_instance_while_that_lives_and_moves_when_it_is_gone(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices
) -> None:
    desk = Desk(waits=False)
    for _ in range(3):
        await serving(desk.script, stateful_session=True)
    for number in range(5):
        for room in ("one", "two", "three"):
            await outcome(await start(orchestrator, said(f"{room}-{number}", room=room)))
    assert [len(homes) for homes in desk.homes.values()] == [1, 1, 1]
    assert len(set.union(*desk.homes.values())) == 3
    (session, home), *_ = desk.homes.items()
    instance = services.registry.find_by_token(next(iter(home)))
    assert instance is not None
    services.registry.lose(instance, InstanceState.FAILED, "it crashed")
    for number in range(5, 8):
        await outcome(await start(orchestrator, said(f"one-{number}", room="one")))
    assert len(desk.homes[session]) == 2


async def test_those_who_wait_for_their_session_keep_nobody_else_from_going(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script, stateful_session=True)
    crowd = [await start(orchestrator, said(f"crowd-{number}")) for number in range(30)]
    # Three may go at once, and thirty wait for one of them.
    assert (orchestrator.admission.active, orchestrator.admission.waiting) == (1, 29)
    others = [await start(orchestrator, said(room, room=room)) for room in ("x", "y")]
    await desk.has_begun("crowd-0", "x", "y")
    desk.let_go("x", "y")
    for other in others:
        _, record = await outcome(other)
        assert record.status is RunStatus.COMPLETED
        assert record.queued_at is None
    desk.let_go(*(f"crowd-{number}" for number in range(30)))
    for run in crowd:
        await outcome(run)
    await check_idle(orchestrator, services)


async def test_those_who_wait_for_their_session_count_among_those_that_wait(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script, stateful_session=True)
    runs = [await start(orchestrator, said(str(number))) for number in range(51)]
    with pytest.raises(Overloaded):
        await start(orchestrator, said("too much"))
    # Nothing was stored of it, and it is taken once there is room.
    other = await start(orchestrator, said("elsewhere", room="elsewhere"))
    desk.let_go("elsewhere", *map(str, range(51)))
    for run in (other, *runs):
        await outcome(run)
    desk.let_go("too much")
    await outcome(await start(orchestrator, said("too much")))
    await check_idle(orchestrator, services)


async def test_runs_wait_for_a_slot_of_their_instance_and_hold_no_place_meanwhile(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script, max_runs=1)
    runs = [await start(orchestrator, said(str(number))) for number in range(10)]
    await desk.has_begun("0")
    assert (orchestrator.admission.active, orchestrator.admission.waiting) == (1, 9)
    assert {(await orchestrator.get(run.run.run_id)).status for run in runs[1:]} == {  # type: ignore[union-attr]
        RunStatus.QUEUED
    }
    desk.let_go(*map(str, range(10)))
    for run in runs:
        await outcome(run)
    assert desk.began == [str(number) for number in range(10)]
    assert set(desk.most.values()) == {1}
    await check_idle(orchestrator, services)


async def test_run_that_finds_its_instance_full_when_its_turn_comes_gives_its_place_away(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script, max_runs=1)
    # Two of three places are others'.
    others = [orchestrator.admission.enter() for _ in range(2)]
    runs = [await start(orchestrator, said(text)) for text in "abc"]
    await desk.has_begun("a")
    assert (orchestrator.admission.active, orchestrator.admission.waiting) == (3, 2)
    others[0].leave()
    for _ in range(20):
        await asyncio.sleep(0)
    assert (orchestrator.admission.active, orchestrator.admission.waiting) == (2, 2)
    others[1].leave()
    desk.let_go(*"abc")
    for run in runs:
        await outcome(run)
    assert desk.ended == [*"abc"]
    await check_idle(orchestrator, services)


@pytest.mark.parametrize("happens", ["cancelled", "instance lost", "its turn"])
async def test_slot_that_is_held_while_a_place_is_waited_for_is_not_lost(
    orchestrator: Orchestrator,
    serving: ServeScript,
    services: RunServices,
    desk: Desk,
    happens: str,
) -> None:
    _, instance = await serving(desk.script, max_runs=1)
    first = await start(orchestrator, said("a"))
    second = await start(orchestrator, said("b"))
    await desk.has_begun("a")
    others = [orchestrator.admission.enter() for _ in range(3)]
    desk.let_go("a")
    await outcome(first)
    # Its slot is the second's, and its place another's.
    for _ in range(100):
        await asyncio.sleep(0)
    assert instance.active_runs == 1
    assert (orchestrator.admission.active, orchestrator.admission.waiting) == (3, 1)
    if happens == "cancelled":
        await orchestrator.cancel(second.run.run_id, "never mind")
        assert instance.active_runs == 0
    if happens == "instance lost":
        await serving(desk.script)
        services.registry.lose(instance, InstanceState.FAILED, "it crashed")
    desk.let_go("b")
    for place in others:
        place.leave()
    record = await ended(orchestrator, second)
    assert (record.status is RunStatus.CANCELLED) is (happens == "cancelled")
    assert desk.ended == (["a"] if happens == "cancelled" else ["a", "b"])
    await check_idle(orchestrator, services)


async def test_session_waits_for_a_slot_of_its_own_instance_while_others_are_free(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    for _ in range(2):
        await serving(desk.script, max_runs=1, stateful_session=True)
    desk.let_go("a", "b")
    _, record = await outcome(await start(orchestrator, said("a")))
    (home,) = [
        each
        for each in services.registry.instances()
        if {each.instance_token} == desk.homes[record.session_key]
    ]
    home.acquire()
    second = await start(orchestrator, said("b"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert desk.began == ["a"]
    home.release()
    assert (await outcome(second))[1].status is RunStatus.COMPLETED
    assert desk.homes[record.session_key] == {home.instance_token}
    await check_idle(orchestrator, services)


async def test_least_busy_instance_takes_the_next_run(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    for _ in range(2):
        await serving(desk.script, max_runs=2)
    runs = [await start(orchestrator, said(str(number))) for number in range(3)]
    await desk.has_begun("0", "1", "2")
    assert sorted(each.active_runs for each in services.registry.instances()) == [1, 2]
    desk.let_go("0", "1", "2")
    for run in runs:
        await outcome(run)


async def test_those_who_wait_for_a_slot_are_bounded_like_all_that_wait(
    orchestrator: Orchestrator, serving: ServeScript, desk: Desk
) -> None:
    await serving(desk.script, max_runs=1)
    started = await asyncio.gather(
        *(start(orchestrator, said(str(number))) for number in range(80)), return_exceptions=True
    )
    refused = [each for each in started if isinstance(each, Overloaded)]
    assert len(refused) == 80 - 51
    desk.let_go(*map(str, range(80)))
    for each in started:
        if isinstance(each, Started):
            await outcome(each)


async def test_cancelled_run_leaves_its_session_and_costs_nobody_a_turn(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script, stateful_session=True)
    first, second, third = [await start(orchestrator, said(text)) for text in "abc"]
    await desk.has_begun("a")
    record = await orchestrator.cancel(second.run.run_id, "not any more")
    assert record.status is RunStatus.CANCELLED
    assert record.started_at is None
    await orchestrator.cancel(first.run.run_id, "nor this one")
    await desk.has_begun("c")
    desk.let_go("c")
    assert (await outcome(third))[1].status is RunStatus.COMPLETED
    await check_idle(orchestrator, services)


async def test_reject_refuses_what_comes_while_the_session_is_busy_and_stores_nothing_of_it(
    orchestrator: Orchestrator,
    serving: ServeScript,
    services: RunServices,
    desk: Desk,
    stores: Stores,
) -> None:
    await serving(desk.script)
    first = await start(orchestrator, said("a"), "reject")
    with pytest.raises(SessionBusy) as raised:
        await start(orchestrator, said("b"), "reject")
    assert raised.value.facts["run_id"] == first.run.run_id
    assert await stores.events.get("acme", "desk", "platform", "b") is None
    # Another session is not busy, and what is no message is not refused for a policy.
    other = await start(orchestrator, said("c", room="other"), "reject")
    recall = await start(orchestrator, said("d", type="message.recalled"), "reject")
    desk.let_go(*"abcd")
    for run in (first, other, recall):
        await outcome(run)
    # Its redelivery is tried anew.
    again = await start(orchestrator, said("b"), "reject")
    assert not again.duplicate
    assert (await outcome(again))[1].status is RunStatus.COMPLETED
    await check_idle(orchestrator, services)


async def test_redelivery_is_answered_although_the_session_is_busy_with_it(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script, interrupt=True)
    for policy in ("reject", "interrupt"):
        first = await start(orchestrator, said(policy, room=policy), policy)
        await desk.has_begun(policy)
        again = await start(orchestrator, said(policy, room=policy), policy)
        assert (again.duplicate, again.run.run_id) == (True, first.run.run_id)
        desk.let_go(policy)
        assert (await outcome(first))[1].status is RunStatus.COMPLETED
    await check_idle(orchestrator, services)


async def test_redelivery_on_its_way_makes_nobody_find_the_session_busy(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    desk = Desk(waits=False)
    await serving(desk.script)
    await outcome(await start(orchestrator, said("a"), "reject"))
    for number in range(20):
        again, new = await asyncio.gather(
            start(orchestrator, said("a"), "reject", "parallel"),
            start(orchestrator, said(f"b{number}"), "reject"),
        )
        assert (again.duplicate, new.duplicate) == (True, False)
        await outcome(new)


async def test_interrupt_ends_what_is_under_way_and_starts_when_that_has_ended(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    runner, _ = await serving(desk.script)
    first = await start(orchestrator, said("a"), "interrupt")
    await desk.has_begun("a")
    second = await start(orchestrator, said("b"), "interrupt")
    stopped = await ended(orchestrator, first)
    assert stopped.status is RunStatus.CANCELLED
    assert stopped.failure is not None
    assert "later message" in stopped.failure.message
    await desk.has_begun("b")
    assert set(desk.most.values()) == {1}
    desk.let_go("b")
    _, record = await outcome(second)
    assert record.status is RunStatus.COMPLETED
    assert stopped.ended_at is not None
    assert record.started_at is not None
    assert record.started_at >= stopped.ended_at
    assert runner.interrupts == []
    await check_idle(orchestrator, services)


async def test_interrupted_runner_is_told_why_where_it_can_be(
    orchestrator: Orchestrator, serving: ServeScript, desk: Desk
) -> None:
    runner, _ = await serving(desk.script, interrupt=True)
    await start(orchestrator, said("a"))
    await desk.has_begun("a")
    second = await start(orchestrator, said("b"), follow_up="interrupt")
    await asyncio.wait_for(runner.interrupted.wait(), 5)
    desk.let_go("a", "b")
    await outcome(second)
    assert runner.interrupts == ["follow_up"]


async def test_latest_of_several_interrupting_messages_is_answered(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script, stateful_session=True)
    runs = [await start(orchestrator, said(text), "interrupt") for text in "abcd"]
    desk.let_go(*"bcd")
    records = [await ended(orchestrator, run) for run in runs]
    assert [record.status for record in records] == [RunStatus.CANCELLED] * 3 + [
        RunStatus.COMPLETED
    ]
    assert desk.ended == ["d"]
    await check_idle(orchestrator, services)


async def test_interrupt_leaves_those_that_wait_their_turn_and_other_sessions_alone(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script, stateful_session=True)
    first = await start(orchestrator, said("a"))
    recall = await start(orchestrator, said("b", type="message.recalled"))
    other = await start(orchestrator, said("c", room="other"))
    await desk.has_begun("a", "c")
    last = await start(orchestrator, said("d"), follow_up="interrupt")
    desk.let_go(*"bcd")
    statuses = [(await ended(orchestrator, run)).status for run in (first, recall, other, last)]
    assert statuses == [RunStatus.CANCELLED, *[RunStatus.COMPLETED] * 3]
    assert [text for text in desk.ended if text != "c"] == ["b", "d"]
    await check_idle(orchestrator, services)


async def test_request_that_asks_for_the_impossible_is_refused_and_stores_nothing(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, stores: Stores
) -> None:
    await serving(Desk(waits=False).script, stateful_session=True)
    for follow_up in ("steer", "parallel"):
        with pytest.raises(InvalidArgument, match="follow_up"):
            await start(orchestrator, said("a"), follow_up=follow_up)
    assert await stores.events.get("acme", "desk", "platform", "a") is None
    # An agent that was saved before its runner was known does what its runner can.
    await outcome(await start(orchestrator, said("a"), "steer"))
    await outcome(await start(orchestrator, said("b"), "parallel"))
    await check_idle(orchestrator, services)


async def test_message_is_handed_to_the_run_under_way_which_answers_it(
    orchestrator: Orchestrator,
    serving: ServeScript,
    services: RunServices,
    stores: Stores,
    desk: Desk,
) -> None:
    await serving(desk.script, steering=True)
    first = await start(orchestrator, said("a"), "steer")
    assert first.own_run_id == first.run.run_id
    await desk.has_begun("a")
    second = await start(orchestrator, said("b"), "steer")
    assert second.run.run_id == first.run.run_id
    assert second.own_run_id != first.run.run_id
    own = await stores.ledger.get(second.own_run_id)
    assert own is not None
    assert (own.status, own.steered_into) == (RunStatus.ACCEPTED, first.run.run_id)
    box = orchestrator.steering_of(first.run.run_id)
    assert box is not None
    item = await anext(box.read())
    assert (item.run_id, item.event.envelope.input.text) == (second.own_run_id, "b")
    box.acknowledge([item.run_id])
    taken = await ended(orchestrator, second)
    assert (taken.status, taken.steered_into) == (RunStatus.COMPLETED, first.run.run_id)
    assert taken == await stores.ledger.get(taken.run_id)
    desk.let_go("a")
    results, record = await outcome(second)
    assert record.run_id == first.run.run_id
    assert results[-1].HasField("run_completed")
    assert desk.began == ["a"]
    (terminal,) = await stores.ledger.results(taken.run_id)
    assert terminal.kind == "run_completed"
    # A redelivery is answered as the event was.
    again = await start(orchestrator, said("b"), "steer")
    assert (again.duplicate, again.run.run_id) == (True, first.run.run_id)
    await check_idle(orchestrator, services)


async def test_message_is_answered_with_the_run_it_was_handed_to_though_that_ends_at_once(
    orchestrator: Orchestrator,
    serving: ServeScript,
    services: RunServices,
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await serving(desk.script, steering=True)
    first = await start(orchestrator, said("a"), "steer")
    await desk.has_begun("a")
    hand = SteeringBox.hand

    def takes_it_up_and_ends(box: SteeringBox, item: SteeredItem) -> bool:
        handed = hand(box, item)
        box.acknowledge([item.run_id])
        orchestrator._active.pop(first.run.run_id)
        return handed

    monkeypatch.setattr(SteeringBox, "hand", takes_it_up_and_ends)
    second = await start(orchestrator, said("b"), "steer")
    assert second.run.run_id == first.run.run_id
    desk.let_go("a")
    assert (await outcome(second))[1].run_id == first.run.run_id
    await outcome(first)
    await check_idle(orchestrator, services)


async def test_message_of_somebody_who_may_do_less_borrows_no_rights_of_the_run_under_way(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    policy = WorkspacePolicy(id="acme", actors=(("bob", Allowance(actions=frozenset())),))
    shelf = Shelf(policies={"acme": policy})
    orchestrator._entry._services = replace(services, shelf=lambda: shelf)
    await serving(desk.script, steering=True)
    first = await start(orchestrator, said("a"), "steer")
    await desk.has_begun("a")
    by = {
        name: await start(
            orchestrator, said(name, actor=event_pb2.Actor(type="user", id=name)), "steer"
        )
        for name in ("ann", "bob", "eve")
    }
    answers = {name: started.run.run_id for name, started in by.items()}
    # Nobody limits ann or eve; bob's message waits for a run with his own rights.
    assert answers["ann"] == answers["eve"] == first.run.run_id
    assert answers["bob"] == by["bob"].own_run_id
    desk.let_go("a", *by)
    for started in by.values():
        assert (await ended(orchestrator, started)).status is RunStatus.COMPLETED
    assert desk.began == ["a", "ann", "bob", "eve"]
    await check_idle(orchestrator, services)


async def test_what_was_never_taken_up_becomes_runs_in_their_order(
    orchestrator: Orchestrator,
    serving: ServeScript,
    services: RunServices,
    stores: Stores,
    desk: Desk,
) -> None:
    await serving(desk.script, steering=True, stateful_session=True)
    first = await start(orchestrator, said("a"), "steer")
    await desk.has_begun("a")
    handed = [await start(orchestrator, said(text), "steer") for text in ("b", "c")]
    queued = await start(orchestrator, said("d"), "steer", "queue")
    handed.append(await start(orchestrator, said("e"), "steer"))
    box = orchestrator.steering_of(first.run.run_id)
    assert box is not None
    box.acknowledge([handed[1].own_run_id])
    desk.let_go("a")
    await desk.has_begun("b")
    own = await orchestrator.get(handed[0].own_run_id)
    assert own is not None
    assert (own.status, own.steered_into) == (RunStatus.RUNNING, None)
    for waiting in (queued, handed[2]):
        record = await orchestrator.get(waiting.own_run_id)
        assert record is not None
        assert (record.status, record.steered_into) == (RunStatus.QUEUED, None)
    # Now it is a run of its own, and so is its redelivery's answer.
    again = await start(orchestrator, said("b"), "steer")
    assert (again.duplicate, again.run.run_id) == (True, handed[0].own_run_id)
    desk.let_go(*"bcde")
    for run in (*handed, queued):
        record = await ended(orchestrator, run)
        assert record == await stores.ledger.get(record.run_id)
    assert desk.ended == ["a", "b", "d", "e"]
    await check_idle(orchestrator, services)


async def test_runs_that_are_cancelled_around_a_handed_message(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script, steering=True)
    first = await start(orchestrator, said("a"), "steer")
    await desk.has_begun("a")
    second, third = [await start(orchestrator, said(text), "steer") for text in ("b", "c")]
    box = orchestrator.steering_of(first.run.run_id)
    assert box is not None
    withdrawn = await orchestrator.cancel(second.own_run_id, "never mind")
    assert (withdrawn.status, withdrawn.steered_into) == (RunStatus.CANCELLED, None)
    assert (await anext(box.read())).run_id == third.own_run_id
    # To say that it was taken up comes too late, and is no error.
    assert box.acknowledge([second.own_run_id]) == []
    desk.let_go("c")
    assert (await orchestrator.cancel(first.run.run_id, "enough")).status is RunStatus.CANCELLED
    assert (await ended(orchestrator, third)).status is RunStatus.COMPLETED
    assert desk.ended == ["c"]
    await check_idle(orchestrator, services)


async def test_caller_that_leaves_gives_up_its_own_message_and_not_the_run(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, desk: Desk
) -> None:
    await serving(desk.script, steering=True)
    first = await start(orchestrator, said("a"), "steer")
    await desk.has_begun("a")
    second = await start(orchestrator, said("b"), "steer")
    orchestrator.give_up(second.own_run_id, "it left")
    assert (await ended(orchestrator, second)).status is RunStatus.CANCELLED
    desk.let_go("a")
    assert (await outcome(first))[1].status is RunStatus.COMPLETED
    await check_idle(orchestrator, services)


async def test_reader_of_the_run_under_way_gets_what_comes_from_now_on(
    orchestrator: Orchestrator, serving: ServeScript, desk: Desk
) -> None:
    await serving(desk.script, steering=True)
    first = await start(orchestrator, said("a"), "steer")
    assert first.reader is not None
    before = results_of(await first.reader.take())
    second = await start(orchestrator, said("b"), "steer")
    desk.let_go("a", "b")
    results, _ = await outcome(second)
    assert results
    assert results[0].sequence > before[-1].sequence
    await outcome(first)


async def test_shutdown_leaves_what_waits_for_its_session_to_the_next_host(
    orchestrator: Orchestrator, serving: ServeScript, stores: Stores, desk: Desk
) -> None:
    await serving(desk.script, stateful_session=True, steering=True)
    first = await start(orchestrator, said("a"))
    await desk.has_begun("a")
    queued = await start(orchestrator, said("b"))
    handed = [await start(orchestrator, said(text), follow_up="steer") for text in ("c", "d")]
    draining = asyncio.create_task(orchestrator.drain(30, asyncio.Event()))
    await asyncio.sleep(0)
    # What is handed over may still be taken up while the run goes on.
    box = orchestrator.steering_of(first.run.run_id)
    assert box is not None
    box.acknowledge([handed[0].own_run_id])
    desk.let_go("a")
    await asyncio.wait_for(draining, 10)
    statuses = {
        text: (await stores.ledger.get(run.own_run_id)).status  # type: ignore[union-attr]
        for text, run in zip("abcd", (first, queued, *handed), strict=True)
    }
    assert statuses == {
        "a": RunStatus.COMPLETED,
        "b": RunStatus.QUEUED,
        "c": RunStatus.COMPLETED,
        "d": RunStatus.ACCEPTED,
    }
    assert desk.began == ["a"]
    assert not orchestrator.active


async def test_shutdown_in_a_hurry_leaves_what_was_handed_over_as_well(
    orchestrator: Orchestrator, serving: ServeScript, stores: Stores, desk: Desk
) -> None:
    await serving(desk.script, steering=True)
    first = await start(orchestrator, said("a"))
    await desk.has_begun("a")
    handed = await start(orchestrator, said("b"), follow_up="steer")
    hurry = asyncio.Event()
    hurry.set()
    await asyncio.wait_for(orchestrator.drain(3600, hurry), 10)
    for run, status in ((first, RunStatus.CANCELLED), (handed, RunStatus.ACCEPTED)):
        record = await stores.ledger.get(run.own_run_id)
        assert record is not None
        assert record.status is status


async def test_fifty_conversations_at_once_each_in_its_order_and_all_beside_each_other(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices
) -> None:
    orchestrator._admission._active_limit = 256
    orchestrator._admission._waiting_limit = 1024
    everybody = asyncio.Barrier(50)
    order: dict[str, list[int]] = {}
    desk = Desk(waits=False)

    async def script(request: run_pb2.RunRequest) -> Payloads:
        room, _, number = request.context.input.text.partition("-")
        # The first of every conversation waits for all the others' first: they are beside.
        if number == "0":
            await everybody.wait()
        order.setdefault(room, []).append(int(number))
        async for payload in desk.script(request):
            yield payload

    for _ in range(3):
        await serving(script, stateful_session=True)
    runs = [
        await start(orchestrator, said(f"{room}-{number}", room=str(room)))
        for number in range(6)
        for room in range(50)
    ]
    for run in runs:
        results, record = await outcome(run)
        assert record.status is RunStatus.COMPLETED
        assert results
    assert order == {str(room): list(range(6)) for room in range(50)}
    assert set(desk.most.values()) == {1}
    assert {len(homes) for homes in desk.homes.values()} == {1}
    await check_idle(orchestrator, services)
