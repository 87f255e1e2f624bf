"""The frozen rights of one run.

Three layers are intersected once, before the runner is called: what its manifest asks for, what the
agent's configuration and policy grant, and what the workspace, bot and actor of the event may use.
Nothing recomputes the outcome: it is projected into the run's context, and every HostAPI call is
checked against it. It holds the models and whatever else was given as they were then, so that a
change of the catalogue changes nothing for a run that is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from host_service.agents.agent import Agent, Scope
from host_service.agents.approval import ApprovalRule
from host_service.agents.selectors import Selection
from host_service.authorization.grants import Grant
from host_service.authorization.layers import Asked, Layers
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.catalogue.model import Model
from host_service.catalogue.shelf import Shelf
from host_service.catalogue.tool import Tool, Toolset
from host_service.identity import join_key

__all__ = ["Asked", "EventIdentity", "GivenFile", "Resources", "Snapshot", "freeze", "left_out"]
from stores.records import ArtifactRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class EventIdentity:
    """What an event says of where it belongs; empty where it says nothing.

    Attributes:
        artifacts: Ids of the artifacts that it brought, which its own run may see even where there
            is no conversation that they could belong to.
    """

    workspace: str
    bot: str
    source: str
    event_id: str
    conversation_id: str
    thread_id: str
    conversation_key: str
    actor_type: str
    actor_id: str
    subject_type: str
    subject_id: str
    artifacts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenFile:
    """A file that a configuration names.

    Attributes:
        artifact_id: The artifact that holds it.
        name: A name to show.
        mime_type: Media type, or empty.
    """

    artifact_id: str
    name: str = ""
    mime_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a run was given, as it was when its rights were frozen; each in the order of its ids.

    Of tools, those whose server told of them by then.
    """

    models: tuple[Model, ...] = ()
    knowledge_bases: tuple[KnowledgeBase, ...] = ()
    files: tuple[GivenFile, ...] = ()
    tools: tuple[Tool, ...] = ()


_NOTHING = Resources()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one run may do. Immutable.

    Attributes:
        run_id: The run.
        plugin_id: The plugin whose instances may use the run's token.
        runner_id: The runner.
        agent_id: The agent.
        identity: Where its event belongs. The conversation named there is the one whose history,
            events and artifacts the run may see.
        permissions: By group, what is granted.
        storage: Storage areas granted.
        actions: Actions granted.
        capabilities: Capabilities of the runner that the host goes by.
        state_keys: For each scope that is granted and that the event has an identity for, the key
            of its state.
        wider_history: Whether history of other conversations of the workspace and bot may be read.
        models: Ids of models.
        tools: Names of tools.
        knowledge_bases: Ids of knowledge bases.
        files: Ids of artifacts that it was given as files.
        declared_actions: Actions that the manifest asks for: what of them was not granted may be
            requested, and is recorded.
        approval: Who must say yes before an action executes: `never`, `always` or `by_rule`.
        approval_rules: What `by_rule` goes by.
        resources: What is known of these models, tools, knowledge bases and files.
        instructions: What the workspace has to say to its runners; empty: nothing.
        trace: What each layer said of every permission and resource.
    """

    run_id: str
    plugin_id: str
    runner_id: str
    agent_id: str
    identity: EventIdentity
    permissions: Mapping[str, frozenset[str]]
    storage: frozenset[str]
    actions: frozenset[str]
    capabilities: frozenset[str]
    state_keys: Mapping[Scope, str]
    wider_history: bool
    models: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    knowledge_bases: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    declared_actions: frozenset[str] = frozenset()
    approval: str = "always"
    approval_rules: tuple[ApprovalRule, ...] = ()
    resources: Resources = _NOTHING
    instructions: str = ""
    trace: tuple[Grant, ...] = ()

    def grants(self, group: str, permission: str) -> bool:
        """Return whether a permission is granted."""
        return permission in self.permissions.get(group, frozenset())

    def sees(self, artifact: ArtifactRecord) -> bool:
        """Return whether an artifact is this run's to see.

        It is when the run made it, when it belongs to the run's conversation, when the run's event
        brought it, or when it is among the run's files.
        """
        own = self.identity
        return (
            artifact.run_id == self.run_id
            or (
                bool(own.conversation_key)
                and artifact.conversation_key == own.conversation_key
                and artifact.workspace == own.workspace
                and artifact.bot == own.bot
            )
            or artifact.artifact_id in own.artifacts
            or artifact.artifact_id in self.files
        )


_EMPTY = Shelf()
_NO_TOOLS = Toolset()


def freeze(
    *,
    run_id: str,
    plugin_id: str,
    agent: Agent,
    asked: Asked,
    identity: EventIdentity,
    selections: tuple[Selection, ...] = (),
    shelf: Shelf = _EMPTY,
    toolset: Toolset = _NO_TOOLS,
    files: Iterable[GivenFile] = (),
) -> Snapshot:
    """Lay what is asked for, granted and allowed over each other.

    Args:
        run_id: The run.
        plugin_id: The plugin that serves its runner.
        agent: Grants by its policies.
        asked: What the runner's manifest asks for.
        identity: Where the event belongs.
        selections: What the agent's configuration grants.
        shelf: What the catalogue holds now.
        toolset: What tool servers offer now.
        files: What is known of the files that are selected, of those that there are.
    """
    state_keys = _state_keys(plugin_id, agent, identity)
    policy = shelf.policies.get(identity.workspace)
    found = {each.artifact_id: each for each in files}
    decision = _decide(
        Layers(
            asked=asked,
            agent=agent,
            selections=selections,
            limits=tuple(policy.limits(bot=identity.bot, actor_id=identity.actor_id))
            if policy is not None
            else (),
            shelf=shelf,
            toolset=toolset,
            files=frozenset(found),
            scopes=frozenset(state_keys),
        )
    )
    return Snapshot(
        run_id=run_id,
        plugin_id=plugin_id,
        runner_id=agent.runner_id,
        agent_id=agent.id,
        identity=identity,
        permissions=decision.permissions,
        storage=decision.granted("storage"),
        actions=decision.granted("action"),
        capabilities=asked.capabilities,
        state_keys=MappingProxyType(
            {scope: state_keys[scope] for scope in map(Scope, decision.granted("state"))}
        ),
        wider_history=bool(decision.granted("history")),
        models=decision.granted("model"),
        tools=decision.granted("tool"),
        knowledge_bases=decision.granted("knowledge_base"),
        files=decision.granted("file"),
        declared_actions=asked.actions if "platform_api" in asked.capabilities else frozenset(),
        approval=agent.approval,
        approval_rules=agent.approval_rules,
        resources=Resources(
            models=decision.models,
            knowledge_bases=decision.knowledge_bases,
            files=tuple(found[each] for each in sorted(decision.granted("file"))),
            tools=decision.tools,
        ),
        instructions=policy.instructions if policy is not None and policy.enabled else "",
        trace=decision.trace,
    )


@dataclass(frozen=True, slots=True)
class _Decision:
    """What layers came to."""

    trace: tuple[Grant, ...]
    by_kind: Mapping[str, frozenset[str]]
    permissions: Mapping[str, frozenset[str]]
    models: tuple[Model, ...]
    knowledge_bases: tuple[KnowledgeBase, ...]
    tools: tuple[Tool, ...]

    def granted(self, kind: str) -> frozenset[str]:
        return self.by_kind.get(kind, frozenset())


# Most runs of an agent have the same layers: what they come to is found once.
@lru_cache(maxsize=256)
def _decide(layers: Layers) -> _Decision:
    trace = tuple(layers.grants())
    by_kind: dict[str, set[str]] = {}
    for each in trace:
        if each.granted:
            by_kind.setdefault(each.kind, set()).add(each.name)
    shelf = layers.shelf
    return _Decision(
        trace,
        {kind: frozenset(names) for kind, names in by_kind.items()},
        MappingProxyType(dict(layers.asked.permissions)),
        tuple(shelf.models[each] for each in sorted(by_kind.get("model", ()))),
        tuple(shelf.knowledge_bases[each] for each in sorted(by_kind.get("knowledge_base", ()))),
        tuple(filter(None, map(layers.toolset.get, sorted(by_kind.get("tool", ()))))),
    )


def left_out(trace: Iterable[Grant]) -> tuple[Grant, ...]:
    """Return what a run was to have and does not, since it is not there any more, or disabled."""
    return tuple(each for each in trace if each.limited_by == "catalogue")


def _state_keys(plugin_id: str, agent: Agent, identity: EventIdentity) -> dict[Scope, str]:
    runner, workspace = agent.runner_id, identity.workspace
    keys: dict[Scope, str] = {
        Scope.RUNNER: join_key("runner", runner, workspace),
        Scope.BINDING: join_key("binding", runner, agent.id),
        Scope.WORKSPACE: join_key("workspace", plugin_id, workspace),
    }
    if identity.conversation_key:
        keys[Scope.CONVERSATION] = join_key(
            "conversation", runner, agent.id, identity.conversation_key
        )
    if identity.actor_id:
        keys[Scope.ACTOR] = join_key(
            "actor",
            runner,
            agent.id,
            workspace,
            identity.bot,
            identity.actor_type,
            identity.actor_id,
        )
    if identity.subject_id:
        keys[Scope.SUBJECT] = join_key(
            "subject",
            runner,
            agent.id,
            workspace,
            identity.bot,
            identity.subject_type,
            identity.subject_id,
        )
    return keys
