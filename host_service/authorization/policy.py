"""A workspace's policy: what events of a workspace, of its bots and of its actors may use.

It is stored as the catalogue's item of kind `policy` with the workspace's id, a JSON object::

    {
      "allowance": {"models": ["small"], "tools": null, "knowledge_bases": null,
                    "storage_areas": ["plugin"], "actions": [], "state_scopes": null,
                    "history_beyond_conversation": false},
      "bots": {"support-bot": {"models": [], ...}},
      "actors": {"alice": {"actions": ["message.send"], ...}},
      "instructions": "Answer in French.",
      "retention": {"max_age_seconds": 7776000}
    }

An absent or `null` list is no limit, an empty one lets nothing through. What an event may use is
what all of them let through: the workspace's allowance, its bot's and its actor's. `retention` is
read by `stores.retention`, which says what may stand there.

An event that names no workspace has no policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from host_service.catalogue.tool import ALL
from host_service.catalogue.tool_server import SEPARATOR
from stores.records import CatalogueItem, CatalogueKind
from stores.retention import RetentionPolicy

_HISTORY = "history_beyond_conversation"
_TOOLS = "tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What may be used. Of each list: None is no limit.

    Attributes:
        models: Ids of models.
        tools: Names of tools; `server__*` is all of a server's.
        knowledge_bases: Ids of knowledge bases.
        storage_areas: Of `plugin`, `workspace`, `binding`.
        actions: Names of platform actions.
        state_scopes: Scopes of state.
        history_beyond_conversation: Whether history of other conversations may be read.
    """

    models: frozenset[str] | None = None
    tools: frozenset[str] | None = None
    knowledge_bases: frozenset[str] | None = None
    storage_areas: frozenset[str] | None = None
    actions: frozenset[str] | None = None
    state_scopes: frozenset[str] | None = None
    history_beyond_conversation: bool = True

    def lets(self, what: str, name: str) -> bool:
        """Return whether something may be used.

        Args:
            what: The attribute that it would be named in; of any other nothing is limited.
            name: Its name.
        """
        if what == _HISTORY:
            return self.history_beyond_conversation
        names: frozenset[str] | None = getattr(self, what, None)
        if names is None or name in names:
            return True
        # `server__*` lets all tools of a server through.
        server_id, separator, _ = name.partition(SEPARATOR)
        return what == _TOOLS and f"{server_id}{separator}{ALL}" in names

    def to_json(self) -> Mapping[str, object]:
        """Return it as plain JSON values."""
        return {
            entry.name: sorted(value) if isinstance(value, frozenset) else value
            for entry in fields(self)
            for value in (getattr(self, entry.name),)
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Allowance:
        """Return what plain JSON values say; fields of a later version are left out."""
        known = {entry.name for entry in fields(cls)}
        chosen: dict[str, Any] = {
            name: frozenset(value) if isinstance(value, list) else value
            for name, value in values.items()
            if name in known
        }
        return cls(**chosen)


_NO_LIMIT = Allowance()
_Named = tuple[tuple[str, Allowance], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspacePolicy:
    """What a workspace allows, tells its runners, and keeps.

    Attributes:
        id: The workspace.
        allowance: What its events may use.
        bots: What events of single bots may use, by the bot's id; within the allowance.
        actors: What events of single actors may use, by the actor's id; within the allowance.
        instructions: A text for the runners' prompts; empty: none.
        retention: How long it keeps its content; None: as it is set otherwise.
        enabled: A disabled policy limits nothing and tells nothing.
        revision: Counts the changes; 0 before it was stored.
    """

    KIND: ClassVar[CatalogueKind] = CatalogueKind.POLICY

    id: str
    allowance: Allowance = _NO_LIMIT
    bots: _Named = ()
    actors: _Named = ()
    instructions: str = ""
    retention: RetentionPolicy | None = None
    enabled: bool = True
    revision: int = field(default=0, compare=False)

    def limits(self, *, bot: str, actor_id: str) -> Iterator[tuple[str, Allowance]]:
        """Yield what limits an event of a bot and an actor, each with whose limit it is."""
        if not self.enabled:
            return
        yield f"policy of workspace {self.id}", self.allowance
        for whose, one, named in (("bot", bot, self.bots), ("actor", actor_id, self.actors)):
            for name, allowance in named:
                if one and name == one:
                    yield f"policy of {whose} {one}", allowance

    def to_document(self) -> str:
        """Return the JSON text that is stored."""
        document: dict[str, object] = {
            "allowance": self.allowance.to_json(),
            "bots": {name: allowance.to_json() for name, allowance in self.bots},
            "actors": {name: allowance.to_json() for name, allowance in self.actors},
            "instructions": self.instructions,
        }
        if self.retention is not None:
            document["retention"] = {
                name: value for name, value in asdict(self.retention).items() if value is not None
            }
        return json.dumps(document, ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_item(cls, item: CatalogueItem) -> WorkspacePolicy:
        """Return the policy that an item is."""
        values: Mapping[str, Any] = json.loads(item.document)
        return cls(
            id=item.id,
            allowance=Allowance.from_json(values.get("allowance", {})),
            bots=_named(values.get("bots", {})),
            actors=_named(values.get("actors", {})),
            instructions=values.get("instructions", ""),
            retention=RetentionPolicy.parse(item.document),
            enabled=item.enabled,
            revision=item.revision,
        )


def _named(values: Mapping[str, Any]) -> _Named:
    return tuple((name, Allowance.from_json(each)) for name, each in sorted(values.items()))
