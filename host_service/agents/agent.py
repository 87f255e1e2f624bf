"""An agent: a runner, its configuration and its policies.

The stored document is a JSON object with exactly the fields of `Agent`, defaults filled in, so that
an operator's choice stays what it was when a default changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from host_service.agents.approval import ApprovalCondition, ApprovalRule

DEFAULT_TIMEOUT_SECONDS = 300.0


class Scope(StrEnum):
    """A scope of state."""

    CONVERSATION = "conversation"
    ACTOR = "actor"
    SUBJECT = "subject"
    RUNNER = "runner"
    BINDING = "binding"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A stored product object.

    Attributes:
        id: What bindings and callers name it by.
        name: A name to show.
        runner_id: `plugin:author/name/runner`.
        config_json: The configuration, a JSON object, as the text it came as.
        enabled: A disabled agent answers nothing.
        timeout_seconds: How long a run may take; 0: no deadline.
        models: Ids of models beyond what the configuration selects.
        tools: Names of tools, likewise.
        knowledge_bases: Ids of knowledge bases, likewise.
        skills: Names of skills; None: all that are visible.
        storage_areas: Of `plugin`, `workspace`, `binding`.
        history_beyond_conversation: Whether runs may read history of other conversations.
        actions: Names of platform actions that may be requested.
        approval: `never`, `always` or `by_rule`.
        approval_rules: What `by_rule` goes by, in order.
        state_enabled: Whether runs may keep state.
        state_scopes: In which scopes.
        streaming: False: deltas are withheld and messages come whole.
        reply: False: nothing goes to the event's reply target.
        max_message_characters: The largest message; None: as the surface says.
        fallback_target: Where output goes without a reply target; empty: it is recorded only.
        follow_up: `queue`, `parallel`, `steer`, `interrupt` or `reject`; empty: by the runner's
            kind.
        revision: Counts the changes; 0 before it was stored.
    """

    id: str
    runner_id: str
    name: str = ""
    # What shows an agent somewhere must not show its secrets.
    config_json: str = field(default="{}", repr=False)
    enabled: bool = True
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    models: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    knowledge_bases: tuple[str, ...] = ()
    skills: tuple[str, ...] | None = None
    storage_areas: frozenset[str] = frozenset({"plugin", "binding"})
    history_beyond_conversation: bool = False
    actions: frozenset[str] = frozenset()
    approval: str = "always"
    approval_rules: tuple[ApprovalRule, ...] = ()
    state_enabled: bool = True
    state_scopes: frozenset[Scope] = frozenset({Scope.CONVERSATION, Scope.ACTOR})
    streaming: bool = True
    reply: bool = True
    max_message_characters: int | None = None
    fallback_target: str = ""
    follow_up: str = ""
    revision: int = field(default=0, compare=False)

    @property
    def plugin_id(self) -> str:
        """The plugin that its runner belongs to, `author/name`."""
        return self.runner_id.removeprefix("plugin:").rpartition("/")[0]

    def to_document(self) -> str:
        """Return the JSON text that is stored."""
        document = {
            entry.name: _to_json(getattr(self, entry.name))
            for entry in fields(self)
            if entry.name != "revision"
        }
        return json.dumps(document, ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_document(cls, document: str, *, revision: int) -> Agent:
        """Return the agent that a document describes; fields of a later version are left out."""
        values: Mapping[str, Any] = json.loads(document)
        known = {entry.name for entry in fields(cls)}
        chosen = {
            name: _FROM_JSON.get(name, _as_is)(value)
            for name, value in values.items()
            if name in known
        }
        return cls(**chosen, revision=revision)


def _to_json(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [asdict(each) if isinstance(each, ApprovalRule) else each for each in value]
    return value


def _as_is(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _rules(rules: list[Mapping[str, Any]]) -> tuple[ApprovalRule, ...]:
    return tuple(
        ApprovalRule(
            rule["action"],
            tuple(ApprovalCondition(**condition) for condition in rule["conditions"]),
            rule["ask"],
        )
        for rule in rules
    )


_FROM_JSON: Mapping[str, Callable[[Any], Any]] = {
    "approval_rules": _rules,
    "storage_areas": frozenset,
    "actions": frozenset,
    "state_scopes": lambda names: frozenset(Scope(name) for name in names),
}
