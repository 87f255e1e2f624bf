"""What operators declare is to be there, and how it hangs together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from host_service.agents.agent import Agent
from host_service.agents.binding import Binding
from host_service.agents.config_schema import ConfigSchema
from host_service.agents.follow_up import RunnerKind, find_fault
from host_service.agents.selectors import KNOWLEDGE_BASE, MODEL, TOOL, Selection, selections
from host_service.authorization.declared_keys import DeclaredKey
from host_service.authorization.policy import WorkspacePolicy
from host_service.catalogue.documents import Catalogued
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.catalogue.model import Model
from host_service.catalogue.plugin_settings import PluginSettings
from host_service.catalogue.shelf import Shelf
from host_service.catalogue.tool import ALL, server_of_all
from host_service.catalogue.tool_server import ToolServer
from host_service.errors import FieldFault
from stores.secrets import SecretChange

SchemaOf = Callable[[str], ConfigSchema | None]
KindOf = Callable[[str], RunnerKind | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Objects that are to be there, all or none.

    Attributes:
        agents: Agents.
        bindings: Bindings.
        models: Models.
        tool_servers: Tool servers.
        knowledge_bases: Knowledge bases.
        policies: Policies of workspaces.
        plugins: What is set for plugins.
        keys: API keys.
        secrets: Secrets of models, tool servers and plugins that are given or taken away.
        faults: What was found wrong with objects that are therefore not among these.
        agent_ids: Ids of all agents that are declared, of those with faults as well.
    """

    agents: Mapping[str, Agent] = field(default_factory=dict)
    bindings: Mapping[str, Binding] = field(default_factory=dict)
    models: Mapping[str, Model] = field(default_factory=dict)
    tool_servers: Mapping[str, ToolServer] = field(default_factory=dict)
    knowledge_bases: Mapping[str, KnowledgeBase] = field(default_factory=dict)
    policies: Mapping[str, WorkspacePolicy] = field(default_factory=dict)
    plugins: Mapping[str, PluginSettings] = field(default_factory=dict)
    keys: Mapping[str, DeclaredKey] = field(default_factory=dict)
    secrets: Sequence[SecretChange] = ()
    faults: Sequence[FieldFault] = ()
    agent_ids: frozenset[str] = frozenset()

    @classmethod
    def of(cls, agents: Sequence[Agent], bindings: Sequence[Binding] = ()) -> Declared:
        """Return these agents and bindings as declared in their order."""
        return cls(
            agents={f"agents[{i}]": agent for i, agent in enumerate(agents)},
            bindings={f"bindings[{i}]": binding for i, binding in enumerate(bindings)},
            agent_ids=frozenset(agent.id for agent in agents),
        )

    def items(self) -> Iterator[Catalogued]:
        """Yield the items of the catalogue, in the order in which they are told of."""
        yield from self.models.values()
        yield from self.tool_servers.values()
        yield from self.knowledge_bases.values()
        yield from self.policies.values()
        yield from self.plugins.values()

    def reference_faults(self, agent_ids: frozenset[str]) -> list[FieldFault]:
        """Return what objects name that must be there and is not.

        Args:
            agent_ids: Agents that there are already.
        """
        known = agent_ids | self.agent_ids
        return [
            FieldFault(
                f"{path}.agent_id",
                "an agent that exists or is applied along",
                f"{binding.agent_id!r}",
            )
            for path, binding in self.bindings.items()
            if binding.agent_id not in known
        ]

    def runner_faults(self, schema_of: SchemaOf, kind_of: KindOf) -> list[FieldFault]:
        """Return what agents' runners refuse; of runners that are not known nothing is.

        Args:
            schema_of: Gives the configuration schema of a runner.
            kind_of: Tells what a runner can do about a busy session.
        """
        faults = []
        for path, agent in self.agents.items():
            schema, kind = schema_of(agent.runner_id), kind_of(agent.runner_id)
            if schema is not None:
                faults += schema.faults(agent.config_json, path=f"{path}.config_json")
            faults += _tool_faults(path, agent, schema)
            rule = find_fault(agent.follow_up, kind) if kind is not None else None
            if rule is not None:
                faults.append(FieldFault(f"{path}.follow_up", rule, agent.follow_up))
        return faults

    def warnings(self, shelf: Shelf, schema_of: SchemaOf) -> tuple[str, ...]:
        """Return what agents and knowledge bases name that is not there.

        Args:
            shelf: What there will be.
            schema_of: Gives the configuration schema of a runner.
        """
        return tuple(
            f"{whose} names {each.kind.replace('_', ' ')} {each.name!r} in {each.field}, {trouble}"
            for whose, each in self.named(schema_of)
            if (trouble := _trouble(shelf, each))
        )

    def named(self, schema_of: SchemaOf) -> Iterator[tuple[str, Selection]]:
        """Yield what agents and knowledge bases name, with who names it."""
        for agent in self.agents.values():
            for each in _granted_by(agent, schema_of(agent.runner_id)):
                yield f"agent {agent.id!r}", each
        for base in self.knowledge_bases.values():
            if base.embedding_model:
                named = Selection(MODEL, base.embedding_model, "embedding_model")
                yield f"knowledge base {base.id!r}", named


def _granted_by(agent: Agent, schema: ConfigSchema | None) -> Iterator[Selection]:
    if schema is not None:
        for each in selections(schema, schema.fill(agent.config_json)):
            yield Selection(each.kind, each.name, f"config.{each.field}")
    for kind, names, where in (
        (MODEL, agent.models, "resources.models"),
        (TOOL, agent.tools, "resources.tools"),
        (KNOWLEDGE_BASE, agent.knowledge_bases, "resources.knowledge_bases"),
    ):
        for name in names:
            yield Selection(kind, name, where)


def _tool_faults(path: str, agent: Agent, schema: ConfigSchema | None) -> Iterator[FieldFault]:
    """Yield names with a star that stand for nothing: all of a server's tools, or one tool."""
    for each in _granted_by(agent, schema):
        if each.kind == TOOL and ALL in each.name and server_of_all(each.name) is None:
            rule = f"a tool's name, or `server__{ALL}` for all tools of a server"
            yield FieldFault(f"{path}.{each.field}", rule, repr(each.name[:100]))


def _trouble(shelf: Shelf, named: Selection) -> str:
    if named.kind == MODEL:
        there, works = named.name in shelf.models, shelf.model(named.name) is not None
    elif named.kind == KNOWLEDGE_BASE:
        there = named.name in shelf.knowledge_bases
        works = shelf.knowledge_base(named.name) is not None
    elif named.kind == TOOL:
        server = shelf.tool_servers.get(server_of_all(named.name) or "")
        there = server is not None or shelf.server_of(named.name) is not None
        works = there and (server is None or server.enabled)
    else:
        return ""
    if works:
        return ""
    return "which is disabled" if there else "which is not there: runs go without it"
