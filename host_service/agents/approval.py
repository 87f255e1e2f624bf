"""Who must say yes before an action executes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class _Number(str):
    """A number of a JSON text, as it stands there: all its digits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ApprovalCondition:
    """A condition on an action.

    Attributes:
        field: `target` or `payload`, or one of them, a dot and a path into its JSON.
        equals: The value it must equal, as text; a number, truth or null as its JSON.
    """

    field: str
    equals: str


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """Whether a person must say yes to certain actions.

    Attributes:
        action: The action, exact, or `prefix.*`, or `*`.
        conditions: They must all hold.
        ask: Whether a person must say yes.
    """

    action: str
    conditions: tuple[ApprovalCondition, ...] = ()
    ask: bool = True


def needs_approval(
    policy: str,
    rules: Sequence[ApprovalRule],
    *,
    action: str,
    target_json: str | None,
    payload_json: str | None,
) -> bool:
    """Return whether a person must say yes.

    Args:
        policy: `never`, `always` or `by_rule`.
        rules: Of the policy `by_rule`: the first that is about the action decides; without one, a
            person is asked.
        action: The action's name.
        target_json: What to act on, a JSON text.
        payload_json: What to do it with, a JSON text.
    """
    if policy == "never":
        return False
    if policy == "by_rule":
        parts = {"target": target_json, "payload": payload_json}
        for rule in rules:
            if _is_about(rule.action, action) and all(
                _holds(condition, parts) for condition in rule.conditions
            ):
                return rule.ask
    return True


def _is_about(pattern: str, action: str) -> bool:
    if pattern == "*":
        return True
    if pattern.endswith(".*"):
        return action.startswith(pattern[:-1])
    return action == pattern


def _holds(condition: ApprovalCondition, parts: dict[str, str | None]) -> bool:
    name, *path = condition.field.split(".")
    text = parts.get(name)
    if not text:
        return False
    value: Any = json.loads(text, parse_int=_Number, parse_float=_Number)
    for step in path:
        if not isinstance(value, dict) or step not in value:
            return False
        value = value[step]
    if isinstance(value, dict | list):
        return False
    told = str(value) if isinstance(value, str) else json.dumps(value)
    return told == condition.equals
