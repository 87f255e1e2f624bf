"""Tests of `host_service.models.retries`: when a call is sent again."""

from collections.abc import Mapping
from email.utils import formatdate

import pytest

from host_service.models.retries import retry_after, wait_seconds

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_provider_says_when_in_each_way(headers: Mapping[str, str], seconds: float | None) -> None:
    assert retry_after(headers, wall_clock=lambda: NOW) == seconds


def test_waits_grow_to_a_bound_and_differ() -> None:
    assert [wait_seconds(attempt, None, chance=lambda: 1.0) for attempt in (1, 2, 3, 9)] == [
        0.5,
        1.0,
        2.0,
        8.0,
    ]
    assert wait_seconds(1, None, chance=lambda: 0.0) == 0.375
    assert wait_seconds(1, 7.0) == 7.0
