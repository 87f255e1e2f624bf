"""A binding: which events reach an agent, and which of two bindings wins.

The narrowest scope wins (actor, thread, conversation, bot, workspace, global), then an exact type
over a prefix, then the longer prefix, then more filters. What still ties is a conflict, unless the
two can never match the same event.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

# From the narrowest to the widest.
SCOPE_FIELDS = ("actor_id", "thread_id", "conversation_id", "bot_id", "workspace_id")
# Where a filter would find the same.
_SCOPE_PATHS = {name: name for name in SCOPE_FIELDS} | {"actor_id": "actor.id"}


class Target(Protocol):
    """What an event says of itself, as far as bindings look at it."""

    @property
    def type(self) -> str:
        """The event's type."""

    def scope_value(self, scope_field: str) -> str:
        """Return the event's value of one of `SCOPE_FIELDS`; empty where it has none."""

    def field_text(self, path: str) -> str | None:
        """Return a field of the event as text; None where it has no such field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Which events reach an agent.

    Attributes:
        id: Its id.
        agent_id: The agent.
        scope: By `SCOPE_FIELDS`, the values that the event's must equal; empty: it holds
            everywhere.
        event_types: Exact types or `prefix.*`.
        filters: Paths of fields and the text each must equal.
        enabled: A disabled binding matches nothing.
        revision: Counts the changes; 0 before it was stored.
    """

    id: str
    agent_id: str
    scope: Mapping[str, str] = field(default_factory=dict)
    event_types: tuple[str, ...] = ()
    filters: tuple[tuple[str, str], ...] = ()
    enabled: bool = True
    revision: int = field(default=0, compare=False)

    @property
    def narrowest(self) -> tuple[str, str]:
        """The narrowest field of its scope and its value; empty where it holds everywhere."""
        name = next((name for name in SCOPE_FIELDS if self.scope.get(name)), "")
        return name, self.scope.get(name, "")

    def conditions(self) -> Mapping[str, str] | None:
        """Return by path what an event's fields must equal; None if no event can satisfy it."""
        conditions = {_SCOPE_PATHS[name]: value for name, value in self.scope.items() if value}
        for path, text in self.filters:
            if conditions.setdefault(path, text) != text:
                return None
        return conditions

    def to_document(self) -> str:
        """Return the JSON text that is stored."""
        document = {
            "scope": {name: value for name, value in self.scope.items() if value},
            "event_types": list(self.event_types),
            "filters": [list(pair) for pair in self.filters],
        }
        return json.dumps(document, ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_document(
        cls, document: str, *, id: str, agent_id: str, enabled: bool, revision: int
    ) -> Binding:
        """Return the binding that a stored document describes."""
        values: Mapping[str, Any] = json.loads(document)
        return cls(
            id=id,
            agent_id=agent_id,
            scope=dict(values["scope"]),
            event_types=tuple(values["event_types"]),
            filters=tuple((path, text) for path, text in values["filters"]),
            enabled=enabled,
            revision=revision,
        )
