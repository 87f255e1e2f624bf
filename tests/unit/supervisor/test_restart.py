"""Tests of `host_service.supervisor.restart`."""

import pytest

from host_service.supervisor.restart import CrashHistory, RestartPolicy


def test_delay_doubles_with_each_crash_up_to_its_bound() -> None:
    history = CrashHistory(RestartPolicy(crashes=20))
    delays = []
    for crash in range(10):
        history.crashed(now=float(crash))
        delays.append(history.delay_seconds(now=float(crash)))
    for crash, delay in enumerate(delays):
        least = min(0.5 * 2**crash, 30.0)
        assert least <= delay <= min(least * 1.3, 30.0)


def test_delays_of_plugins_that_crash_together_differ() -> None:
    history = CrashHistory(RestartPolicy())
    history.crashed(now=0.0)
    assert len({history.delay_seconds(now=0.0) for _ in range(10)}) > 1


def test_crash_long_ago_does_not_count() -> None:
    history = CrashHistory(RestartPolicy())
    for at in (0.0, 1.0, 2.0, 3.0):
        history.crashed(now=at)
        history.served()
    history.crashed(now=70.0)
    assert not history.is_too_much(now=70.0)
    assert history.delay_seconds(now=70.0) <= 0.65


@pytest.mark.parametrize(("apart_seconds", "held"), [(10.0, True), (20.0, False)])
def test_five_crashes_within_a_minute_are_too_much(apart_seconds: float, *, held: bool) -> None:
    history = CrashHistory(RestartPolicy())
    for crash in range(5):
        history.crashed(now=crash * apart_seconds)
        assert history.is_too_much(now=crash * apart_seconds) is (held and crash == 4)
        history.served()


def test_five_starts_in_a_row_that_fail_slowly_are_too_much() -> None:
    history = CrashHistory(RestartPolicy())
    for crash in range(5):
        history.crashed(now=crash * 45.0)
    assert history.is_too_much(now=180.0)


def test_clean_sheet_forgets_everything() -> None:
    history = CrashHistory(RestartPolicy())
    for _ in range(5):
        history.crashed(now=0.0)
    history.clear()
    assert not history.is_too_much(now=0.0)
