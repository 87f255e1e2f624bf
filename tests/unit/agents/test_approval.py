"""Tests of `host_service.agents.approval`: when a person is asked."""

import pytest

from host_service.agents.agent import Agent
from host_service.agents.approval import ApprovalCondition, ApprovalRule, needs_approval

BIG = "9223372036854775809"


def asks(
    *rules: ApprovalRule,
    policy: str = "by_rule",
    action: str = "message.send",
    target: str | None = None,
    payload: str | None = None,
) -> bool:
    return needs_approval(policy, rules, action=action, target_json=target, payload_json=payload)


def when(field: str, equals: str) -> ApprovalRule:
    return ApprovalRule("*", (ApprovalCondition(field, equals),), ask=False)


def test_policy_decides_where_it_needs_no_rule() -> None:
    free = ApprovalRule("*", ask=False)
    assert asks(free, policy="always") is True
    assert asks(policy="never") is False
    assert asks(free, policy="never") is False
    assert asks(policy="by_rule") is True
    # A word of a later version is no permission.
    assert asks(free, policy="sometimes") is True


@pytest.mark.parametrize(
    ("pattern", "action", "matches"),
    [
        ("message.send", "message.send", True),
        ("message.send", "message.sends", False),
        ("message.*", "message.send", True),
        ("message.*", "message.send.all", True),
        ("message.*", "message", False),
        ("message.*", "messages.send", False),
        ("*", "anything", True),
        ("message*", "message.send", False),
    ],
)
def test_rule_is_about_what_its_pattern_names(pattern: str, action: str, matches: bool) -> None:
    assert asks(ApprovalRule(pattern, ask=False), action=action) is not matches


def test_first_rule_that_is_about_an_action_decides() -> None:
    never, always = ApprovalRule("a", ask=False), ApprovalRule("a")
    assert asks(never, always, action="a") is False
    assert asks(always, never, action="a") is True
    assert asks(ApprovalRule("b"), never, action="a") is False
    assert asks(never, action="b") is True


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (("target.room", "lobby"), True),
        (("target.room", "Lobby"), False),
        (("target.id", BIG), True),
        (("target.id", "9223372036854775808"), False),
        (("target.ratio", "1.10"), True),
        (("target.ratio", "1.1"), False),
        (("target.open", "true"), True),
        (("target.none", "null"), True),
        (("target.empty", ""), True),
        (("target.absent", ""), False),
        (("target.deep.room", "x"), True),
        (("target.deep", '{"room": "x"}'), False),
        (("target.list", "[1]"), False),
        (("target", "lobby"), False),
        (("payload", "hello"), True),
        (("payload.room", "lobby"), False),
    ],
)
def test_condition_compares_a_single_value(condition: tuple[str, str], holds: bool) -> None:
    target = (
        f'{{"room": "lobby", "id": {BIG}, "ratio": 1.10, "open": true, "none": null, "empty": "",'
        ' "deep": {"room": "x"}, "list": [1]}'
    )
    assert asks(when(*condition), target=target, payload='"hello"') is not holds


def test_condition_on_what_was_not_said_does_not_hold() -> None:
    assert asks(when("payload", "")) is True
    assert asks(when("target.room", "")) is True


def test_all_conditions_must_hold() -> None:
    rule = ApprovalRule(
        "*", (ApprovalCondition("target", "a"), ApprovalCondition("payload", "b")), ask=False
    )
    assert asks(rule, target='"a"', payload='"b"') is False
    assert asks(rule, target='"a"', payload='"c"') is True
    assert asks(rule, target='"c"', payload='"b"') is True


def test_rules_are_stored_with_their_agent() -> None:
    rules = (when("target.room", "lobby"), ApprovalRule("message.*"), ApprovalRule("x", ask=False))
    agent = Agent(id="a", runner_id="plugin:a/b/c", approval="by_rule", approval_rules=rules)
    again = Agent.from_document(agent.to_document(), revision=1)
    assert again == agent
    assert again.approval_rules == rules
    assert hash(again) == hash(agent)
