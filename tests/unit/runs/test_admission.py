"""Tests of `host_service.runs.admission`: how many go, how many wait, and in which order."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_service.errors import Overloaded
from host_service.runs.admission import Admission, Place


def active(places: Sequence[Place]) -> list[int]:
    """Return which of some places have their turn."""
    return [number for number, place in enumerate(places) if place.is_active]


async def test_runs_beyond_the_limit_wait_and_go_first_come_first_served() -> None:
    admission = Admission(active=2, waiting=10)
    places = [admission.enter() for _ in range(5)]
    assert active(places) == [0, 1]
    assert (admission.active, admission.waiting) == (2, 3)
    places[1].leave()
    assert active(places[2:]) == [0]
    places[0].leave()
    assert active(places[2:]) == [0, 1]
    assert (admission.active, admission.waiting) == (2, 1)


async def test_turn_comes_as_soon_as_a_place_is_left() -> None:
    admission = Admission(active=1, waiting=1)
    first, second = admission.enter(), admission.enter()
    await first.turn()
    waiting = asyncio.create_task(second.turn())
    await asyncio.sleep(0)
    assert not waiting.done()
    first.leave()
    await asyncio.wait_for(waiting, 1)


async def test_full_line_is_refused_with_the_limits_and_a_time_to_try_again() -> None:
    admission = Admission(active=1, waiting=1)
    admission.enter(), admission.enter()
    with pytest.raises(Overloaded) as raised:
        admission.enter()
    assert raised.value.facts == {"active_limit": "1", "waiting_limit": "1"}
    assert raised.value.retry_after_seconds
    assert (admission.active, admission.waiting) == (1, 1)


async def test_run_that_was_accepted_before_waits_even_in_a_full_line() -> None:
    admission = Admission(active=1, waiting=1)
    places = [admission.enter(), admission.enter(), admission.enter(beyond_limit=True)]
    assert admission.waiting == 2
    with pytest.raises(Overloaded):
        admission.enter()
    places[0].leave()
    places[1].leave()
    assert active(places[2:]) == [0]


async def test_leaving_twice_frees_one_place() -> None:
    admission = Admission(active=1, waiting=5)
    places = [admission.enter() for _ in range(3)]
    places[0].leave()
    places[0].leave()
    assert active(places[1:]) == [0]


async def test_leaving_while_waiting_lets_nobody_go_and_makes_room_in_the_line() -> None:
    admission = Admission(active=1, waiting=1)
    first, second = admission.enter(), admission.enter()
    second.leave()
    assert (admission.active, admission.waiting) == (1, 0)
    third = admission.enter()
    first.leave()
    assert third.is_active


async def test_run_that_is_cancelled_while_it_waits_costs_nobody_a_turn() -> None:
    admission = Admission(active=1, waiting=5)
    first, second, third = admission.enter(), admission.enter(), admission.enter()
    waiting = asyncio.create_task(second.turn())
    await asyncio.sleep(0)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    # It writes its end before it leaves; meanwhile others come and go.
    first.leave()
    assert third.is_active
    second.leave()
    assert (admission.active, admission.waiting) == (1, 0)
    third.leave()
    assert admission.active == 0


async def test_run_that_stands_aside_leaves_its_place_to_others_and_counts_as_waiting() -> None:
    admission = Admission(active=1, waiting=3)
    first, second = admission.enter(), admission.enter()
    first.step_aside()
    assert second.is_active
    assert (first.is_active, first.is_aside) == (False, True)
    assert (admission.active, admission.waiting) == (1, 1)
    third = admission.enter()
    # It came first, and goes before who came later.
    first.stand_in_line()
    second.leave()
    assert first.is_active
    assert not third.is_active
    first.leave()
    assert third.is_active


async def test_run_may_wait_for_its_turn_have_it_give_it_away_and_wait_again() -> None:
    admission = Admission(active=1, waiting=5)
    first, second = admission.enter(), admission.enter()
    for _ in range(3):
        waiting = asyncio.create_task(second.turn())
        await asyncio.sleep(0)
        first.step_aside()
        await asyncio.wait_for(waiting, 1)
        second.step_aside()
        # The place is free: it is the run's turn at once.
        second.stand_in_line()
        assert second.is_active
        second.step_aside()
        first.stand_in_line()
        second.stand_in_line()
        assert (first.is_active, second.is_active) == (True, False)


async def test_hundreds_that_stand_aside_keep_nobody_from_going() -> None:
    admission = Admission(active=2, waiting=500)
    aside = [admission.enter(aside=True) for _ in range(400)]
    others = [admission.enter() for _ in range(3)]
    assert active(others) == [0, 1]
    assert (admission.active, admission.waiting) == (2, 401)
    for place in aside:
        place.leave()
    assert (admission.active, admission.waiting) == (2, 1)


async def test_those_who_stand_aside_fill_the_line() -> None:
    admission = Admission(active=2, waiting=2)
    admission.enter(aside=True), admission.enter(aside=True)
    with pytest.raises(Overloaded):
        admission.enter(aside=True)
    going = admission.enter()
    assert going.is_active
    with pytest.raises(Overloaded):
        going.step_aside_if_room()
    assert going.is_active
    assert admission.enter(aside=True, beyond_limit=True).is_aside
    assert (admission.active, admission.waiting) == (1, 3)


class _Ledger:
    """What a plain reading says of who goes, who stands in the line, and who aside."""

    def __init__(self) -> None:
        self.going: set[int] = set()
        self.line: set[int] = set()
        self.aside: set[int] = set()

    def drop(self, number: int) -> None:
        for held in (self.going, self.line, self.aside):
            held.discard(number)

    def settle(self, limit: int) -> None:
        while self.line and len(self.going) < limit:
            self.going.add(min(self.line))
            self.line.remove(min(self.line))


async def _take_step(step: str, number: int, place: Place, told: _Ledger) -> None:
    if step == "aside" and number in told.going | told.line:
        place.step_aside()
        told.drop(number)
        told.aside.add(number)
    elif step == "ready" and number in told.aside:
        place.stand_in_line()
        told.drop(number)
        told.line.add(number)
    elif step in {"leave", "cancel"}:
        if step == "cancel" and number in told.line:
            task = asyncio.create_task(place.turn())
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        place.leave()
        told.drop(number)


@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "enter aside", "leave", "cancel", "aside", "ready"]),
            st.integers(0, 9),
        )
    ),
)
@settings(max_examples=150, deadline=None)
def test_places_follow_the_rules_whatever_comes_and_goes(
    limit: int, line: int, steps: list[tuple[str, int]]
) -> None:
    async def play() -> None:
        admission, told, places = Admission(active=limit, waiting=line), _Ledger(), list[Place]()
        waiters: dict[int, asyncio.Task[None]] = {}
        for step, which in steps:
            if step.startswith("enter"):
                aside = step == "enter aside"
                waits = aside or len(told.going) == limit
                if waits and len(told.line) + len(told.aside) >= line:
                    with pytest.raises(Overloaded):
                        admission.enter(aside=aside)
                    continue
                (told.aside if aside else told.line).add(len(places))
                places.append(admission.enter(aside=aside))
            elif places:
                number = which % len(places)
                await _take_step(step, number, places[number], told)
            told.settle(limit)
            for number in told.line:
                if number not in waiters or waiters[number].done():
                    waiters[number] = asyncio.create_task(places[number].turn())
            await asyncio.sleep(0)
            assert set(active(places)) == told.going
            assert {n for n, place in enumerate(places) if place.is_aside} == told.aside
            waiting = len(told.line) + len(told.aside)
            assert (admission.active, admission.waiting) == (len(told.going), waiting)

    asyncio.run(play())
