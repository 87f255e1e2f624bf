import pytest

from benchmarks.spread import Spread, paired_ratios, percentile


def test_median_and_quartiles_lie_between_values_where_they_must() -> None:
    assert Spread.of([4.0, 1.0, 3.0, 2.0]) == Spread(median=2.5, low=1.75, high=3.25)


def test_one_value_is_its_own_median_and_quartiles() -> None:
    assert Spread.of([7.0]) == Spread(median=7.0, low=7.0, high=7.0)


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.0, 0.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)]
)
def test_percentile_counts_from_the_smallest_value(fraction: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, -1, -1)], fraction) == expected


def test_percentile_of_no_values_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_ratios_are_made_round_by_round() -> None:
    # The machine was half as fast in the second round: the ratio is the same.
    assert paired_ratios([10.0, 5.0], [4.0, 2.0]) == [2.5, 2.5]


def test_ratios_of_different_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_ratios([1.0, 2.0], [1.0])
