"""Tests of `benchmarks.stores.pairs`."""

from benchmarks.stores.pairs import in_pairs


async def test_steps_take_turns_and_the_first_round_does_not_count() -> None:
    taken: list[str] = []

    async def measured() -> None:
        taken.append("measured")

    async def floor() -> None:
        taken.append("floor")

    times, of_floor = await in_pairs(measured, floor, rounds=2, times=3)
    assert taken == ["measured", "floor"] * 9
    assert len(times) == len(of_floor) == 2
    assert min(times + of_floor) >= 0
