"""Durations are read as people write them."""

from datetime import timedelta

import pytest

from host_service.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("5m", 300),
        ("1h30m", 5400),
        ("90d", 7_776_000),
        ("1d2h3m4s5ms", 93_784.005),
    ],
)
def test_a_number_with_a_unit_is_a_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "5 m", "-5s", "5x", "5m!", "1e3s", "99999999d"])
def test_anything_else_is_refused_with_what_was_written(text: str) -> None:
    with pytest.raises(ValueError, match=f"{text!r} is "):
        parse_duration(text)
