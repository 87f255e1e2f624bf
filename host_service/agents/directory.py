"""The agents and bindings in force: a view of the catalogue, replaced whole on a change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from host_service.agents.agent import Agent
from host_service.agents.binding import Binding, Target
from host_service.agents.config_schema import ConfigSchema
from host_service.agents.resolution import BindingIndex, Found, find_tie
from host_service.catalogue.shelf import Shelf
from host_service.errors import BindingConflict, FieldFault, InvalidArgument, NotFound
from stores.catalogue import Catalogue
from stores.records import AgentRecord, BindingRecord

Item = TypeVar("Item", Agent, Binding)

DEFAULT_AGENT_ID = "default"
DEFAULT_BINDING_ID = "default-messages"


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one agent or binding.

    Attributes:
        object: `agent` or `binding`.
        id: Its id.
        kind: `created`, `updated` or `unchanged`.
        fields: Paths of the fields that differ, with their JSON before and after (None: not set).
    """

    object: str
    id: str
    kind: str
    fields: tuple[tuple[str, str | None, str | None], ...] = ()


class AgentDirectory:
    """Answers which agent an event reaches, and takes changes.

    Args:
        catalogue: Where agents and bindings are stored.
        schema_of: Gives the configuration schema of a runner; None for one that is not known. An
            agent of an unknown runner is saved as it is, and checked when it runs.
    """

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        schema_of: Callable[[str], ConfigSchema | None] = lambda _runner_id: None,
    ) -> None:
        self._catalogue = catalogue
        self._schema_of = schema_of
        # What is checked together must be written before the next is checked.
        self._changing = asyncio.Lock()
        self._agents: Mapping[str, Agent] = {}
        self._bindings: Mapping[str, Binding] = {}
        self._index = BindingIndex(())
        self._shelf = Shelf()

    @property
    def agents(self) -> Mapping[str, Agent]:
        """All agents by id."""
        return self._agents

    @property
    def bindings(self) -> Mapping[str, Binding]:
        """All bindings by id."""
        return self._bindings

    @property
    def shelf(self) -> Shelf:
        """All models, tool servers, knowledge bases and policies."""
        return self._shelf

    async def reload(self) -> None:
        """Read everything again."""
        agents = [_agent(record) for record in await self._catalogue.list_agents()]
        bindings = [_binding(record) for record in await self._catalogue.list_bindings()]
        self._shelf = Shelf.of(await self._catalogue.list_items())
        self._agents = {agent.id: agent for agent in agents}
        self._bindings = {binding.id: binding for binding in bindings}
        # A disabled agent answers nothing: for its bindings to win and then fail would hide wider
        # ones.
        enabled = {agent.id for agent in agents if agent.enabled}
        self._index = BindingIndex(binding for binding in bindings if binding.agent_id in enabled)

    async def ensure_default(self, runner_id: str) -> None:
        """On the first start, create one agent on this runner, with a binding for every message."""
        if await self._catalogue.revision() == 0:
            agent = Agent(id=DEFAULT_AGENT_ID, name="Default", runner_id=runner_id)
            binding = Binding(
                id=DEFAULT_BINDING_ID, agent_id=agent.id, event_types=("message.received",)
            )
            await self.apply([agent], [binding])

    def resolve(self, target: Target) -> tuple[Binding, Agent]:
        """Return the binding and agent that answer an event.

        Raises:
            NoBinding, BindingConflict: As `find`.
        """
        found, agent = self.find(target)
        return found.binding, agent

    def find(self, target: Target) -> tuple[Found, Agent]:
        """Return the binding that answers an event, what it won over, and its agent.

        Raises:
            NoBinding, BindingConflict: As `BindingIndex.find`.
        """
        found = self._index.find(target)
        return found, self._agents[found.binding.agent_id]

    def named(self, agent_id: str) -> Agent:
        """Return the agent that a caller names.

        Raises:
            NotFound: It is unknown or disabled.
        """
        agent = self._agents.get(agent_id)
        if agent is None or not agent.enabled:
            raise NotFound("enabled agent", agent_id)
        return agent

    async def apply(
        self, agents: Sequence[Agent], bindings: Sequence[Binding], *, dry_run: bool = False
    ) -> tuple[Change, ...]:
        """Store agents and bindings, all or none, and say what changed.

        Raises:
            InvalidArgument: Ids occur twice, or a binding names an agent that is not there.
            BindingConflict: Two bindings would match alike.
        """
        async with self._changing:
            await self.reload()
            self._check(agents, bindings)
            of_agents = [_change("agent", self._agents.get(each.id), each) for each in agents]
            of_bindings = [
                _change("binding", self._bindings.get(each.id), each) for each in bindings
            ]
            if not dry_run:
                # What is unchanged may yet be written differently: it stays the text it was.
                await self._catalogue.apply(
                    [_agent_record(each) for each in _changed(agents, of_agents)],
                    [_binding_record(each) for each in _changed(bindings, of_bindings)],
                )
                await self.reload()
        return (*of_agents, *of_bindings)

    def _check(self, agents: Sequence[Agent], bindings: Sequence[Binding]) -> None:
        known = set(self._agents) | {agent.id for agent in agents}
        faults = [*_repeated("agents", agents), *_repeated("bindings", bindings)]
        faults += [
            FieldFault(
                f"bindings[{i}].agent_id",
                "an agent that exists or is applied along",
                f"{binding.agent_id!r}",
            )
            for i, binding in enumerate(bindings)
            if binding.agent_id not in known
        ]
        for i, agent in enumerate(agents):
            schema = self._schema_of(agent.runner_id)
            if schema is not None:
                faults += schema.faults(agent.config_json, path=f"agents[{i}].config_json")
        if faults:
            raise InvalidArgument(faults)
        merged = {**self._bindings, **{binding.id: binding for binding in bindings}}
        tie = find_tie(list(merged.values()))
        if tie is not None:
            raise BindingConflict([binding.id for binding in tie])

    async def delete_agent(self, agent_id: str) -> bool:
        """Remove an agent and its bindings; return whether there was one."""
        async with self._changing:
            for binding in await self._catalogue.list_bindings(agent_id):
                await self._catalogue.delete_binding(binding.id)
            existed = await self._catalogue.delete_agent(agent_id)
            await self.reload()
        return existed

    async def delete_binding(self, binding_id: str) -> bool:
        """Remove a binding; return whether there was one."""
        async with self._changing:
            existed = await self._catalogue.delete_binding(binding_id)
            await self.reload()
        return existed


def _repeated(name: str, items: Sequence[Agent | Binding]) -> list[FieldFault]:
    seen: set[str] = set()
    faults = []
    for i, item in enumerate(items):
        if item.id in seen:
            faults.append(
                FieldFault(f"{name}[{i}].id", "unique in the request", f"{item.id!r} twice")
            )
        seen.add(item.id)
    return faults


def _change(kind: str, before: Agent | Binding | None, after: Agent | Binding) -> Change:
    if before is None:
        return Change(kind, after.id, "created")
    old, new = _flat(before), _flat(after)
    fields = tuple(
        (path, old.get(path), new.get(path))
        for path in sorted(old | new)
        if old.get(path) != new.get(path)
    )
    return Change(kind, after.id, "updated" if fields else "unchanged", fields)


def _changed(items: Sequence[Item], changes: Sequence[Change]) -> list[Item]:
    pairs = zip(items, changes, strict=True)
    return [item for item, change in pairs if change.kind != "unchanged"]


def _flat(item: Agent | Binding) -> dict[str, str]:
    """Return the leaves of an object as JSON by path; a configuration counts by its own fields."""
    document: dict[str, Any] = json.loads(item.to_document())
    if isinstance(item, Agent):
        document["config"] = json.loads(document.pop("config_json"))
    else:
        document |= {"agent_id": item.agent_id, "enabled": item.enabled}
    leaves: dict[str, str] = {}
    stack: list[tuple[str, Any]] = [("", document)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, dict) and (value or not path):
            stack += [(_below(path, name), entry) for name, entry in value.items()]
        else:
            leaves[path] = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return leaves


def _below(path: str, name: str) -> str:
    # A name with a dot in it must not look like two.
    step = json.dumps(name, ensure_ascii=False) if "." in name else name
    return f"{path}.{step}" if path else step


def _agent(record: AgentRecord) -> Agent:
    return Agent.from_document(record.document, revision=record.revision)


def _agent_record(agent: Agent) -> AgentRecord:
    return AgentRecord(
        id=agent.id,
        name=agent.name,
        runner_id=agent.runner_id,
        document=agent.to_document(),
        enabled=agent.enabled,
    )


def _binding(record: BindingRecord) -> Binding:
    return Binding.from_document(
        record.document,
        id=record.id,
        agent_id=record.agent_id,
        enabled=record.enabled,
        revision=record.revision,
    )


def _binding_record(binding: Binding) -> BindingRecord:
    return BindingRecord(
        id=binding.id,
        agent_id=binding.agent_id,
        document=binding.to_document(),
        enabled=binding.enabled,
    )
