import json

import pytest

from benchmarks.report import Row, at_least, at_most, table


def test_goal_is_about_the_ratio_where_there_is_a_floor() -> None:
    row = Row("streaming", "results/s", [180.0, 200.0, 190.0], [100.0, 100.0, 100.0], at_least(1.9))
    assert row.judged.median == pytest.approx(1.9)
    assert not row.is_missed


def test_goal_is_about_the_figure_where_there_is_no_floor() -> None:
    assert Row("start", "s", [1.4, 1.6, 1.7], goal=at_most(1.5)).is_missed
    assert not Row("start", "s", [1.4, 1.4, 1.7], goal=at_most(1.5)).is_missed


def test_ratio_is_the_median_of_ratios_and_not_the_ratio_of_medians() -> None:
    row = Row("delay", "ms", [1.0, 10.0, 100.0], [1.0, 2.0, 100.0])
    assert row.judged.median == 1.0


def test_row_without_goal_is_never_missed_and_has_no_verdict() -> None:
    row = Row("for information", "runs/s", [1.0], [2.0])
    assert not row.is_missed
    assert row.cells()[-2:] == ("", "")


def test_table_says_what_was_measured_and_what_became_of_the_goal() -> None:
    rows = [
        Row("many", "results/s", [123_456.0], [1000.0], at_least(100)),
        Row("late", "ms", [60.0], goal=at_most(50)),
    ]
    heading, many, late = table(rows).splitlines()
    assert heading.split() == ["what", "measured", "floor", "ratio", "spread", "goal"]
    assert many.split() == [
        *("many", "123,456", "results/s", "1,000", "123", "123", "..", "123", ">=", "100", "met"),
    ]
    assert late.split() == ["late", "60.0", "ms", "60.0", "..", "60.0", "<=", "50.0", "missed"]


def test_columns_of_the_table_stand_below_each_other() -> None:
    rows = [Row("a", "x", [1.0], goal=at_most(2)), Row("much longer", "y", [2.0], goal=at_most(1))]
    lines = table(rows).splitlines()
    assert len({line.index("<=") for line in lines[1:]}) == 1


def test_json_keeps_every_round() -> None:
    row = Row("streaming", "results/s", [3.0, 4.0], [1.0, 2.0], at_least(2))
    assert json.loads(json.dumps(row.to_json())) == {
        "what": "streaming",
        "unit": "results/s",
        "measured": [3.0, 4.0],
        "floor": [1.0, 2.0],
        "judged": "ratio",
        "median": 2.5,
        "quartiles": [2.25, 2.75],
        "goal": ">= 2.00",
        "met": True,
    }
