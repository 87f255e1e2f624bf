"""The three layers that a run's rights are made of, laid over each other.

Each permission and resource becomes one `Grant` that says what every layer had to say of it; what
the run may do is exactly what is granted there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from host_service.agents.agent import Agent, Scope
from host_service.agents.selectors import FILE, KNOWLEDGE_BASE, MODEL, TOOL, Selection
from host_service.authorization.grants import Grant
from host_service.authorization.policy import Allowance
from host_service.catalogue.shelf import Shelf
from host_service.catalogue.tool import Toolset, server_of_all

#: What limits an event, and whose limit each is.
Limits = tuple[tuple[str, Allowance], ...]

# What a manifest asks for to be given models of a kind.
_CALLS_OF_MODELS: Mapping[str, frozenset[str]] = {
    "chat": frozenset({"invoke", "stream"}),
    "rerank": frozenset({"rerank"}),
    "embedding": frozenset({"embed"}),
}
# The attribute of an allowance that limits resources of a kind.
_LIMITED_BY: Mapping[str, str] = {
    "model": "models",
    "tool": "tools",
    "knowledge_base": "knowledge_bases",
    "storage": "storage_areas",
    "action": "actions",
    "state": "state_scopes",
    "history": "history_beyond_conversation",
}


# Told apart by identity: it is made once for each manifest.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """What a runner's manifest asks for and can use, in the contract's words.

    Attributes:
        permissions: By group (`models`, `tools`, `history` ...), the permissions asked for.
        storage: Storage areas asked for.
        actions: Names of actions asked for.
        capabilities: What the runner can do.
    """

    permissions: Mapping[str, frozenset[str]]
    storage: frozenset[str]
    actions: frozenset[str]
    capabilities: frozenset[str]

    def any_of(self, group: str) -> bool:
        """Return whether any permission of a group is asked for."""
        return bool(self.permissions.get(group))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """All that decides what a run may use.

    Attributes:
        asked: What the manifest asks for.
        agent: Grants by its policies.
        selections: What its configuration grants.
        limits: What the workspace's policy lets through for this event.
        shelf: What there is.
        toolset: What tool servers offer.
        files: Ids of the files that there are, of those that are selected.
        scopes: Scopes of state that the event has an identity for.
    """

    asked: Asked
    agent: Agent
    selections: tuple[Selection, ...]
    limits: Limits
    shelf: Shelf
    toolset: Toolset
    files: frozenset[str]
    scopes: frozenset[Scope]

    def grants(self) -> Iterator[Grant]:
        """Yield what becomes of every permission and resource that a layer speaks of."""
        yield from self._permissions()
        yield from self._models()
        yield from self._tools()
        yield from self._knowledge_bases()
        yield from self._skills()
        yield from self._files()
        yield from self._storage()
        yield from self._state()
        yield from self._actions()
        yield self._history()

    def _permissions(self) -> Iterator[Grant]:
        for group, permissions in self.asked.permissions.items():
            for permission in sorted(permissions):
                yield self._grant(
                    "permission", f"{group}: {permission}", asked=True, granted_by="manifest"
                )

    def _models(self) -> Iterator[Grant]:
        asked = self.asked.permissions.get("models", frozenset())
        for name, granted_by in self._granted(MODEL, self.agent.models, "models").items():
            model = self.shelf.model(name)
            calls = _CALLS_OF_MODELS.get(model.kind, frozenset()) if model else asked
            yield self._grant(
                MODEL, name, asked=bool(asked & calls), granted_by=granted_by, there=bool(model)
            )

    def _tools(self) -> Iterator[Grant]:
        asked = self.asked.any_of("tools") and "tool_calling" in self.asked.capabilities
        granted = self._granted(TOOL, self.agent.tools, "tools")
        for name, granted_by in self._each_tool(granted).items():
            there = self._has_tool(name)
            yield self._grant(TOOL, name, asked=asked, granted_by=granted_by, there=there)

    def _each_tool(self, granted: Mapping[str, str]) -> Mapping[str, str]:
        """Return what grants each tool: in the place of `server__*`, all that the server offers.

        Where that is nothing, the name stays, and is what is not there.
        """
        found: dict[str, str] = {}
        for name, granted_by in granted.items():
            server_id = server_of_all(name)
            tools = (self.toolset.offered_by(server_id) or ()) if server_id else ()
            names = [each.name for each in tools if self.shelf.server_of(each.name)]
            for each in names:
                found.setdefault(each, f"{granted_by}: {name}")
            if not names:
                # Its own name is what grants a tool that has both.
                found[name] = granted_by
        return found

    def _has_tool(self, name: str) -> bool:
        """Return whether a tool is there; of a server that was not heard yet, any may be."""
        server = self.shelf.server_of(name)
        if server is None or server_of_all(name):
            return False
        offered = self.toolset.offered_by(server.id)
        return offered is None or any(each.name == name for each in offered)

    def _knowledge_bases(self) -> Iterator[Grant]:
        asked = (
            self.asked.any_of("knowledge_bases")
            and "knowledge_retrieval" in self.asked.capabilities
        )
        granted = self._granted(KNOWLEDGE_BASE, self.agent.knowledge_bases, "knowledge_bases")
        for name, granted_by in granted.items():
            there = self.shelf.knowledge_base(name) is not None
            yield self._grant(KNOWLEDGE_BASE, name, asked=asked, granted_by=granted_by, there=there)

    def _skills(self) -> Iterator[Grant]:
        asked = "skill_authoring" in self.asked.capabilities
        for name in self.agent.skills or ():
            # No skills are kept yet, so that there is none by any name.
            yield self._grant(
                "skill", name, asked=asked, granted_by="resources.skills", there=False
            )

    def _files(self) -> Iterator[Grant]:
        asked = "config" in self.asked.permissions.get("files", frozenset())
        for name, granted_by in self._granted(FILE, (), "").items():
            there = name in self.files
            yield self._grant(FILE, name, asked=asked, granted_by=granted_by, there=there)

    def _storage(self) -> Iterator[Grant]:
        granted = self.agent.storage_areas
        yield from self._by_policy("storage", self.asked.storage, granted, "resources.storage")

    def _actions(self) -> Iterator[Grant]:
        can = "platform_api" in self.asked.capabilities
        asked = self.asked.actions if can else frozenset()
        granted = self.agent.actions
        yield from self._by_policy("action", asked, granted, "resources.platform_actions")

    def _state(self) -> Iterator[Grant]:
        for scope in sorted(self.agent.state_scopes if self.agent.state_enabled else ()):
            grant = self._grant("state", scope.value, asked=True, granted_by="state.scopes")
            if scope not in self.scopes:
                grant = _cut(grant, "event")
            yield grant

    def _history(self) -> Grant:
        wider = self.agent.history_beyond_conversation
        return self._grant(
            "history",
            "beyond conversation",
            asked=self.asked.any_of("history"),
            granted_by="resources.history_beyond_conversation" if wider else "",
        )

    def _granted(self, kind: str, names: Iterable[str], policy: str) -> Mapping[str, str]:
        """Return what grants each resource of a kind, by name; a selection before the policy."""
        granted = {
            each.name: f"config.{each.field}" for each in self.selections if each.kind == kind
        }
        return {**dict.fromkeys(names, f"resources.{policy}"), **granted}

    def _by_policy(
        self, kind: str, asked: frozenset[str], granted: frozenset[str], policy: str
    ) -> Iterator[Grant]:
        for name in sorted(asked | granted):
            yield self._grant(
                kind,
                name,
                asked=name in asked,
                granted_by=policy if name in granted else "",
            )

    def _grant(
        self, kind: str, name: str, *, asked: bool, granted_by: str, there: bool = True
    ) -> Grant:
        limited_by = ""
        if not asked:
            limited_by = "manifest"
        elif not granted_by:
            limited_by = "agent"
        elif not there:
            limited_by = "catalogue"
        else:
            limited_by = self._limit_on(kind, name)
        return Grant(
            kind=kind,
            name=name,
            granted=not limited_by,
            asked=asked,
            granted_by=granted_by,
            limited_by=limited_by,
        )

    def _limit_on(self, kind: str, name: str) -> str:
        what = _LIMITED_BY.get(kind)
        if what is None:
            return ""
        return next((whose for whose, each in self.limits if not each.lets(what, name)), "")


def _cut(grant: Grant, limited_by: str) -> Grant:
    return Grant(
        kind=grant.kind,
        name=grant.name,
        granted=False,
        asked=grant.asked,
        granted_by=grant.granted_by,
        limited_by=grant.limited_by or limited_by,
    )
