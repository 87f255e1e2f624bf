"""Tests of `host_service.runs.sessions`: order within a session, and none between sessions."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_service.runs.sessions import Sessions, Turn
from tests.unit.runs.samples import NOON


def enter(sessions: Sessions, run_id: str, *, key: str = "s", in_order: bool = True) -> Turn:
    """Let a run come to a session now, and be accepted."""
    turn = sessions.enter(key, run_id, in_order=in_order, came_at=NOON)
    turn.settle()
    return turn


def test_runs_of_a_session_have_their_turns_one_after_the_other() -> None:
    sessions = Sessions()
    first, second, third = (enter(sessions, run_id) for run_id in "abc")
    assert [turn.has_come for turn in (first, second, third)] == [True, False, False]
    first.leave()
    assert [turn.has_come for turn in (second, third)] == [True, False]
    second.leave()
    assert third.has_come


def test_run_that_goes_beside_waits_for_none_and_is_waited_for() -> None:
    sessions = Sessions()
    first = enter(sessions, "a")
    beside = enter(sessions, "b", in_order=False)
    behind = enter(sessions, "c")
    assert (beside.has_come, behind.has_come) == (True, False)
    first.leave()
    assert not behind.has_come
    beside.leave()
    assert behind.has_come


def test_run_that_leaves_while_it_waits_costs_nobody_a_turn() -> None:
    sessions = Sessions()
    first, second, third = (enter(sessions, run_id) for run_id in "abc")
    second.leave()
    assert not third.has_come
    first.leave()
    assert third.has_come


def test_sessions_know_nothing_of_each_other_and_nothing_is_kept_of_idle_ones() -> None:
    sessions = Sessions()
    turns = [enter(sessions, "a", key=str(number)) for number in range(100)]
    assert all(turn.has_come for turn in turns)
    assert len(sessions) == 100
    for turn in turns:
        turn.leave()
        turn.leave()
    assert len(sessions) == 0


async def test_turn_is_waited_for_and_its_waiter_may_be_cancelled() -> None:
    sessions = Sessions()
    first, second, third = (enter(sessions, run_id) for run_id in "abc")
    waiting = [asyncio.create_task(turn.come()) for turn in (second, third)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    with suppress(asyncio.CancelledError):
        await waiting[0]
    first.leave()
    second.leave()
    await asyncio.wait_for(waiting[1], 1)


def test_run_of_a_lost_host_goes_before_those_that_wait_here_and_came_later() -> None:
    sessions = Sessions()
    under_way = sessions.enter("s", "a", in_order=True, came_at=NOON + timedelta(seconds=5))
    waiting = sessions.enter("s", "b", in_order=True, came_at=NOON + timedelta(seconds=6))
    moments = {"early": NOON, "late": NOON + timedelta(seconds=7)}
    for run_id, came_at in reversed(moments.items()):
        sessions.enter("s", run_id, in_order=True, came_at=came_at, came_before=True)
    assert [turn.run_id for turn in sessions.line("s")] == ["a", "early", "b", "late"]
    under_way.leave()
    assert [turn.has_come for turn in sessions.line("s")] == [True, False, False]
    assert not waiting.has_come


async def test_session_is_settled_when_every_acceptance_is_known() -> None:
    sessions = Sessions()
    turns = [sessions.enter("s", run_id, in_order=True, came_at=NOON) for run_id in ("a", "b", "c")]
    settling = [asyncio.create_task(sessions.settle("s")) for _ in range(2)]
    await asyncio.sleep(0)
    turns[2].settle()
    await asyncio.sleep(0)
    turns[0].settle()
    await asyncio.sleep(0)
    assert not any(task.done() for task in settling)
    settling[0].cancel()
    await asyncio.sleep(0)
    # One that turns out to be a redelivery leaves.
    turns[1].leave()
    await asyncio.wait_for(settling[1], 1)
    await asyncio.wait_for(sessions.settle("s"), 1)
    await asyncio.wait_for(sessions.settle("nobody's"), 1)


@given(st.lists(st.tuples(st.sampled_from(["order", "beside", "leave"]), st.integers(0, 9))))
@settings(max_examples=100, deadline=None)
def test_turn_has_come_exactly_for_those_with_nothing_ahead(steps: list[tuple[str, int]]) -> None:
    sessions, there = Sessions(), list[tuple[Turn, bool]]()
    for number, (step, which) in enumerate(steps):
        if step != "leave":
            turn = enter(sessions, str(number), in_order=step == "order")
            there.append((turn, step == "order"))
        elif there:
            there.pop(which % len(there))[0].leave()
        assert list(sessions.line("s")) == [turn for turn, _ in there]
        for place, (turn, in_order) in enumerate(there):
            assert turn.has_come is (place == 0 or not in_order)
    assert len(sessions) == bool(there)


@pytest.mark.parametrize("in_order", [True, False])
def test_first_of_a_session_goes_at_once(in_order: bool) -> None:
    assert enter(Sessions(), "a", in_order=in_order).has_come
