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


class _Ledger:
    """What a plain reading says of who goes and who waits."""

    def __init__(self) -> None:
        self.going: list[int] = []
        self.line: list[int] = []

    def settle(self, limit: int) -> None:
        while self.line and len(self.going) < limit:
            self.going.append(self.line.pop(0))


@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from(["enter", "leave", "cancel"]), st.integers(0, 9))),
)
@settings(max_examples=60, deadline=None)
def test_places_follow_the_rules_whatever_comes_and_goes(
    limit: int, line: int, steps: list[tuple[str, int]]
) -> None:
    async def play() -> None:
        admission, told, places = Admission(active=limit, waiting=line), _Ledger(), list[Place]()
        for step, which in steps:
            if step == "enter":
                if len(told.going) == limit and len(told.line) >= line:
                    with pytest.raises(Overloaded):
                        admission.enter()
                    continue
                told.line.append(len(places))
                places.append(admission.enter())
            elif places:
                number = which % len(places)
                if step == "cancel" and number in told.line:
                    task = asyncio.create_task(places[number].turn())
                    await asyncio.sleep(0)
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
                places[number].leave()
                for held in (told.going, told.line):
                    if number in held:
                        held.remove(number)
            told.settle(limit)
            assert sorted(told.going) == [
                number for number in active(places) if not places[number].has_left
            ]
            assert (admission.active, admission.waiting) == (len(told.going), len(told.line))

    asyncio.run(play())
