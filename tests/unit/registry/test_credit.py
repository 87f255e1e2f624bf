"""How much an attached runner may send ahead of who reads."""

from hypothesis import given
from hypothesis import strategies as st

from host_service.registry.credit import Credit

SMALL, LARGE = 60, 500_000


def test_as_much_may_come_as_was_allowed_and_no_more() -> None:
    credit = Credit(initial=4)
    assert credit.take(3, SMALL)
    assert credit.take(1, SMALL)
    assert not credit.take(1, SMALL)


def test_what_waits_to_be_read_takes_of_what_is_allowed() -> None:
    credit = Credit(initial=64)
    assert credit.take(64, 64 * SMALL)
    assert credit.give_back(1) == 512 - 63
    assert credit.take(449, 449 * SMALL)
    # The window is full of what waits: reading one more of it makes no room worth a message.
    assert credit.give_back(1) == 0


def test_reading_small_results_allows_more_of_them_than_at_first() -> None:
    credit = Credit(initial=64)
    assert credit.take(64, 64 * SMALL)
    assert credit.give_back(64) == 512


def test_reading_large_results_allows_few() -> None:
    credit = Credit(initial=64)
    assert credit.take(64, 64 * LARGE)
    assert credit.give_back(64) == 16


def test_credit_is_given_in_pieces_worth_a_message() -> None:
    credit = Credit(initial=64)
    assert credit.take(64, 64 * SMALL)
    credit.give_back(64)
    given = []
    for _ in range(512):
        assert credit.take(1, SMALL)
        given.append(credit.give_back(1))
    assert [each for each in given if each] == [256, 256]


@given(st.lists(st.tuples(st.integers(1, 600), st.integers(1, 2_000_000)), max_size=60))
def test_runner_that_keeps_to_its_credit_is_never_stuck_nor_at_fault(
    frames: list[tuple[int, int]],
) -> None:
    credit, allowed = Credit(initial=64), 64
    for wanted, size in frames:
        count = min(wanted, allowed)
        allowed -= count
        assert credit.take(count, count * size)
        allowed += credit.give_back(count)
        # All of it was read: whoever has something to say may say it.
        assert allowed > 0
        assert allowed <= 512 or allowed <= 64
