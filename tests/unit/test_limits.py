"""Tests of `host_service.limits`: every limit can be set, and only to what makes sense."""

from dataclasses import fields, replace
from typing import Any

import pytest

from host_service.limits import MIB, Limits
from host_service.registry.channel import SERVER_OPTIONS
from host_service.validation import Validator
from host_service.validation.rules import MESSAGE_SIZES


def test_limits_are_as_the_contract_says() -> None:
    limits = Limits()
    assert limits.message_bytes == 16 * MIB
    assert limits.frame_bytes == 3 * MIB
    assert limits.result_bytes == limits.inline_artifact_bytes == MIB
    assert limits.event_bytes == limits.page_bytes == 2 * MIB
    assert limits.page_item_text_bytes == limits.config_bytes == 256 * 1024
    assert (limits.active_runs, limits.waiting_runs) == (256, 1024)
    assert (limits.page_items, limits.page_default_items) == (100, 50)
    assert (limits.instance_wait_seconds, limits.interrupt_grace_seconds) == (10, 5)
    assert (limits.reader_patience_seconds, limits.bookmark_seconds) == (10, 15)
    assert (limits.checkpoint_seconds, limits.checkpoint_bytes) == (0.5, 64 * 1024)
    assert limits.shutdown_grace_seconds == 30


def test_every_limit_but_the_transports_can_be_set_and_leaves_the_others_alone() -> None:
    for name, value in Limits().as_mapping().items():
        if name == "message_bytes":
            continue
        changed = Limits().with_overrides({name: value + 1})
        assert changed.as_mapping() == {**Limits().as_mapping(), name: value + 1}
        assert changed != Limits()


def test_fraction_is_taken_where_the_unit_has_fractions() -> None:
    assert Limits().with_overrides({"checkpoint_seconds": 0.25}).checkpoint_seconds == 0.25
    assert Limits().with_overrides({"checkpoint_seconds": 1}).checkpoint_seconds == 1


@pytest.mark.parametrize(
    ("overrides", "rule"),
    [
        ({"no_such": 1}, "no such limit; known: .*active_runs"),
        ({"message_bytes": 1024}, "cannot be set"),
        ({"event_bytes": 0}, "above 0"),
        ({"event_bytes": -1}, "above 0"),
        ({"event_bytes": 1.5}, "whole number"),
        ({"event_bytes": True}, "above 0"),
        ({"checkpoint_seconds": float("nan")}, "above 0"),
        ({"checkpoint_seconds": float("inf")}, "above 0"),
        ({"event_bytes": float("inf")}, "above 0"),
        ({"event_bytes": "many"}, "above 0"),
        ({"event_bytes": None}, "above 0"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name_and_rule(
    overrides: dict[str, Any], rule: str
) -> None:
    (name,) = overrides
    with pytest.raises(ValueError, match=f"limits.{name}: .*{rule}"):
        Limits().with_overrides(overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        {"frame_bytes": 16 * MIB},
        {"result_bytes": 16 * MIB},
        {"inline_artifact_bytes": 16 * MIB},
        {"result_bytes": 8 * MIB, "inline_artifact_bytes": 8 * MIB},
        {"event_bytes": 16 * MIB},
        {"config_bytes": 16 * MIB},
        {"page_bytes": 16 * MIB},
        {"page_item_text_bytes": 15 * MIB},
        {"message_characters": 4 * MIB},
    ],
)
def test_no_size_reaches_the_transports_own_so_that_our_errors_answer_first(
    overrides: dict[str, int],
) -> None:
    with pytest.raises(ValueError, match=f"limits.{next(iter(overrides))}: .*message_bytes"):
        Limits().with_overrides(overrides)
    half = {name: value // 2 - MIB for name, value in overrides.items()}
    assert Limits().with_overrides(half).as_mapping().items() >= half.items()


def test_limit_of_the_transport_is_that_of_its_servers() -> None:
    options = dict(SERVER_OPTIONS)
    for direction in ("send", "receive"):
        assert options[f"grpc.max_{direction}_message_length"] == Limits().message_bytes


def test_rules_know_the_limits_by_their_names() -> None:
    names = {field.name for field in fields(Limits)}
    assert {size.name for size in MESSAGE_SIZES.values()} <= names
    Validator(Limits().as_mapping())


def test_limits_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError):
        Limits().event_bytes = 1  # type: ignore[misc]  # it must not
    assert replace(Limits(), event_bytes=1).event_bytes == 1
