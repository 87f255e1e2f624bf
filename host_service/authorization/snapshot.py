"""The frozen rights of one run.

Three layers are intersected once, before the runner is called: what its manifest asks for, what the
    agent's configuration
and policy grant, and what the workspace, bot and actor of the event may use. Nothing recomputes the
outcome: it is projected into the run's context, and every HostAPI call is checked against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from host_service.agents.agent import Agent, Scope
from host_service.identity import join_key


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EventIdentity:
    """What an event says of where it belongs; empty where it says nothing."""

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
        approval: Who must say yes before an action executes: `never`, `always` or `by_rule`.
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
    approval: str = "always"

    def grants(self, group: str, permission: str) -> bool:
        """Return whether a permission is granted."""
        return permission in self.permissions.get(group, frozenset())


def freeze(
    *, run_id: str, plugin_id: str, agent: Agent, asked: Asked, identity: EventIdentity
) -> Snapshot:
    """Intersect what is asked for with what the agent grants for this event."""
    return Snapshot(
        run_id=run_id,
        plugin_id=plugin_id,
        runner_id=agent.runner_id,
        agent_id=agent.id,
        identity=identity,
        permissions=MappingProxyType(dict(asked.permissions)),
        storage=asked.storage & agent.storage_areas,
        actions=asked.actions & agent.actions
        if "platform_api" in asked.capabilities
        else frozenset(),
        capabilities=asked.capabilities,
        state_keys=MappingProxyType(
            _state_keys(plugin_id, agent, identity) if agent.state_enabled else {}
        ),
        wider_history=agent.history_beyond_conversation,
        approval=agent.approval,
    )


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
    return {scope: key for scope, key in keys.items() if scope in agent.state_scopes}
