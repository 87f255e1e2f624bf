"""Tests of `host_service.agents.follow_up`: what happens to an event whose session is busy."""

import pytest

from host_service.agents.follow_up import FollowUp, RunnerKind, choose, find_fault
from host_service.errors import InvalidArgument

PLAIN = RunnerKind(is_stateful=False, can_be_steered=False)
STEERED = RunnerKind(is_stateful=False, can_be_steered=True)
STATEFUL = RunnerKind(is_stateful=True, can_be_steered=False)
BOTH = RunnerKind(is_stateful=True, can_be_steered=True)


def chosen(
    policy: str = "",
    override: str = "",
    *,
    kind: RunnerKind | None = PLAIN,
    is_message: bool = True,
    has_session: bool = True,
) -> str:
    return choose(
        policy=policy,
        override=override,
        kind=kind,
        is_message=is_message,
        has_session=has_session,
    )


@pytest.mark.parametrize(
    ("kind", "follow_up"),
    [(PLAIN, "parallel"), (STEERED, "parallel"), (STATEFUL, "queue"), (BOTH, "queue")],
)
def test_default_is_by_the_runners_kind(kind: RunnerKind, follow_up: str) -> None:
    assert chosen(kind=kind) == follow_up


def test_runner_that_is_not_known_keeps_the_order() -> None:
    assert chosen(kind=None) == "queue"
    assert chosen("parallel", kind=None) == "queue"
    assert chosen("steer", kind=None) == "queue"
    assert chosen(override="steer", kind=None) == "queue"
    assert chosen("reject", kind=None) == "reject"


@pytest.mark.parametrize("follow_up", list(FollowUp))
def test_policy_is_for_messages_and_a_request_for_its_event(follow_up: FollowUp) -> None:
    kind = STEERED
    assert chosen(follow_up, kind=kind) == follow_up
    assert chosen(follow_up, kind=kind, is_message=False) == "parallel"
    assert chosen("reject", override=follow_up, kind=kind) == follow_up
    assert chosen("reject", override=follow_up, kind=kind, is_message=False) == follow_up


@pytest.mark.parametrize("follow_up", list(FollowUp))
def test_event_without_a_conversation_finds_no_session_busy(follow_up: FollowUp) -> None:
    assert chosen(follow_up, kind=STEERED, has_session=False) == "parallel"
    assert chosen(override=follow_up, kind=STEERED, has_session=False) == "parallel"
    assert chosen(follow_up, kind=BOTH, has_session=False) == "queue"


def test_request_for_what_the_runner_cannot_is_refused_by_its_field() -> None:
    for override, kind in (("steer", PLAIN), ("steer", STATEFUL), ("parallel", STATEFUL)):
        with pytest.raises(InvalidArgument) as raised:
            chosen(override=override, kind=kind)
        (fault,) = raised.value.faults
        assert (fault.field, fault.got) == ("follow_up", override)


def test_policy_that_the_runner_cannot_any_more_gives_way_to_the_default() -> None:
    assert chosen("steer", kind=PLAIN) == "parallel"
    assert chosen("steer", kind=STATEFUL) == "queue"
    assert chosen("parallel", kind=STATEFUL) == "queue"


def test_what_a_runner_cannot_is_named() -> None:
    assert "steering" in (find_fault("steer", STATEFUL) or "")
    assert "stateful_session" in (find_fault("parallel", BOTH) or "")
    for follow_up in ("", "queue", "interrupt", "reject"):
        assert find_fault(follow_up, STATEFUL) is None
    assert find_fault("steer", STEERED) is None
