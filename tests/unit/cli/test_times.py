"""Times are shown as people read them."""

from datetime import UTC, datetime

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from host_service.cli.times import how_long_ago, local_time, span, span_of


@pytest.fixture(autouse=True)
def _in_shanghai(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s ago"), (59, "59 s ago"), (60, "1 min ago"), (3599, "59 min ago"), (7200, "2 h ago")],
)
def test_a_time_of_today_is_told_by_its_age(seconds: int, shown: str) -> None:
    now = datetime(2026, 1, 2, 12, tzinfo=UTC)
    then = Timestamp(seconds=int(now.timestamp()) - seconds)
    assert how_long_ago(then, now=now) == shown


def test_an_older_time_is_told_by_its_local_date() -> None:
    now = datetime(2026, 1, 9, tzinfo=UTC)
    then = Timestamp(seconds=int(datetime(2026, 1, 2, 20, 30, tzinfo=UTC).timestamp()))
    assert how_long_ago(then, now=now) == "2026-01-03 04:30"


def test_a_local_time_says_its_offset() -> None:
    assert local_time(Timestamp(seconds=0, nanos=5_000_000)) == "1970-01-01 08:00:00.005+08:00"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0004, "0 ms"),
        (0.25, "250 ms"),
        (1.25, "1.2 s"),
        (75, "1 min 15 s"),
        (300, "5 min"),
        (7260, "2 h 1 min"),
        (7200, "2 h"),
    ],
)
def test_a_span_has_the_unit_that_suits_it(seconds: float, shown: str) -> None:
    assert span_of(seconds) == shown


def test_a_span_lies_between_two_times() -> None:
    assert span(Timestamp(seconds=1), Timestamp(seconds=1, nanos=2_000_000)) == "2 ms"
