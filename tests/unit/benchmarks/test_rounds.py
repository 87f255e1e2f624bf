from benchmarks.rounds import Measure, take_turns


async def test_contenders_take_turns_and_the_first_round_is_thrown_away() -> None:
    order = []

    def contender(name: str, figures: list[float]) -> Measure:
        async def measure() -> float:
            order.append(name)
            return figures.pop(0)

        return measure

    measured = await take_turns(
        {"host": contender("host", [0.0, 1.0, 2.0]), "relay": contender("relay", [0.0, 3.0, 4.0])},
        rounds=2,
    )
    assert measured == {"host": [1.0, 2.0], "relay": [3.0, 4.0]}
    assert order == ["host", "relay"] * 3
