"""Tests of `runner_sdk._settings`: what hosts hand over, each for its own runs."""

import pytest
from runmesh.v1 import discovery_pb2

from runner_sdk._settings import HostSettings


def hand(settings: HostSettings, host_id: str, text: str | None) -> None:
    settings.take(discovery_pb2.HandshakeRequest(host_id=host_id, settings_json=text))


def test_each_host_has_its_own_settings_and_the_last_ones_hold() -> None:
    settings = HostSettings()
    hand(settings, "one", '{"limit": 12345678901234567890}')
    hand(settings, "two", '{"limit": 2}')
    assert settings.of("one") == {"limit": 12345678901234567890}
    assert settings.of("two") == {"limit": 2}
    assert settings.of("three") == {}
    hand(settings, "one", None)
    assert settings.of("one") == {}
    assert settings.of("two") == {"limit": 2}


@pytest.mark.parametrize("text", ["[1]", "{", "NaN"])
def test_settings_that_are_no_object_change_nothing(text: str) -> None:
    settings = HostSettings()
    hand(settings, "one", '{"limit": 1}')
    hand(settings, "one", text)
    assert settings.of("one") == {"limit": 1}


def test_whoever_shakes_hands_with_many_names_takes_no_more_than_so_much() -> None:
    settings = HostSettings()
    for number in range(100):
        hand(settings, f"host {number}", '{"limit": 1}')
    assert settings.of("host 0") == {}
    assert settings.of("host 99") == {"limit": 1}


def test_nobody_changes_what_a_run_was_given() -> None:
    settings = HostSettings()
    hand(settings, "one", '{"limit": 1}')
    with pytest.raises(TypeError):
        settings.of("one")["limit"] = 2  # type: ignore[index]
