"""Agents as the catalogue keeps them: the values of secret fields sealed, apart from the rest.

An agent's document names its secret fields; their values are one secret of the catalogue, encrypted
with the host's key, so that nobody who reads the database or an export has them. In memory an agent
is whole. As long as its runner is not known any field may be a secret, so that all are sealed.

A change of a value alone changes the document as well, by a mark that says nothing about the value:
runs go by the agent's revision, which counts the changes of its document.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from host_service.agents.agent import Agent
from host_service.agents.config_schema import ConfigSchema
from host_service.identity import new_id
from host_service.validation.json_exact import read_exactly, write_exactly
from stores.errors import SecretUnreadable
from stores.records import AgentRecord
from stores.secrets import Secret, SecretChange, SecretOwner, Secrets

_log = logging.getLogger("runmesh.agents")

_KIND = "agent"
_NAME = "config"
_WITHHELD, _ALL, _MARK = "withheld", "withheld_all", "sealed_as"


@dataclass(frozen=True, slots=True)
class _Sealed:
    """The sealed values of an agent: an object of JSON, and the mark that stands for it."""

    values_json: str
    mark: str


_NOTHING = _Sealed("{}", "")


class SealedAgents:
    """Turns agents into what is stored of them, and back.

    Args:
        secrets: Where sealed values are.
        schema_of: Gives the configuration schema of a runner; None for one that is not known.
    """

    def __init__(
        self, *, secrets: Secrets, schema_of: Callable[[str], ConfigSchema | None]
    ) -> None:
        self._secrets = secrets
        self._schema_of = schema_of
        self._sealed: dict[str, _Sealed] = {}
        self._agents: Mapping[str, Agent] = {}
        self._old: frozenset[str] = frozenset()
        self._whole: frozenset[str] = frozenset()

    async def read(self, records: Sequence[AgentRecord]) -> list[Agent]:
        """Return the agents that are stored, with their sealed values put back."""
        sealed: dict[str, _Sealed] = {}
        agents: list[Agent] = []
        old: set[str] = set()
        whole: set[str] = set()
        for record in records:
            agent = Agent.from_document(record.document, revision=record.revision)
            document = json.loads(record.document)
            if _WITHHELD not in document:
                old.add(agent.id)
            if document.get(_ALL):
                whole.add(agent.id)
            if document.get(_WITHHELD):
                values_json = await self._values(agent.id)
                sealed[agent.id] = _Sealed(values_json, document.get(_MARK, ""))
                config = read_exactly(agent.config_json) | read_exactly(values_json)
                agent = replace(agent, config_json=write_exactly(config))
            agents.append(agent)
        self._sealed = sealed
        self._agents = {agent.id: agent for agent in agents}
        self._old, self._whole = frozenset(old), frozenset(whole)
        return agents

    async def _values(self, agent_id: str) -> str:
        try:
            secret = await self._secrets.get(SecretOwner(_KIND, agent_id), _NAME)
        except SecretUnreadable as error:
            _log.error("the secret values of agent %r cannot be read: %s", agent_id, error)
            secret = None
        return secret.reveal() if secret is not None else "{}"

    def is_settled(self, agent_id: str) -> bool:
        """Return whether what is stored of an agent is as it would be stored now.

        It is not if it was stored before values were sealed, before its runner said that they are
        secret, or before its runner was known and said that they are not. What was sealed by what
        a runner said stays so while the runner is not known.
        """
        agent = self._agents.get(agent_id)
        if agent is None:
            return True
        if agent_id in self._old:
            return False
        schema = self._schema_of(agent.runner_id)
        if schema is None:
            return True
        sealed: Collection[str] = read_exactly(self._sealed.get(agent_id, _NOTHING).values_json)
        return agent_id not in self._whole and set(self._secret_names(agent)) <= set(sealed)

    def _secret_names(self, agent: Agent) -> Sequence[str]:
        config: dict[str, Any] = read_exactly(agent.config_json)
        schema = self._schema_of(agent.runner_id)
        return sorted(config if schema is None else schema.secret_names & config.keys())

    def write(self, agent: Agent) -> tuple[AgentRecord, Sequence[SecretChange]]:
        """Return what is to be stored of an agent, and what changes of its sealed values."""
        config: dict[str, Any] = read_exactly(agent.config_json)
        names = self._secret_names(agent)
        values_json = write_exactly({name: config[name] for name in names})
        before = self._sealed.get(agent.id, _NOTHING)
        changes: list[SecretChange] = []
        mark = before.mark
        if values_json != before.values_json:
            mark = new_id() if names else ""
            secret = Secret(values_json) if names else None
            changes.append(SecretChange(SecretOwner(_KIND, agent.id), _NAME, secret))
        shown = agent
        if names:
            rest = {name: value for name, value in config.items() if name not in names}
            shown = replace(agent, config_json=write_exactly(rest))
        document = {**json.loads(shown.to_document()), _WITHHELD: names}
        if names:
            document[_MARK] = mark
        if names and self._schema_of(agent.runner_id) is None:
            document[_ALL] = True
        record = AgentRecord(
            id=agent.id,
            name=agent.name,
            runner_id=agent.runner_id,
            document=json.dumps(document, ensure_ascii=False, sort_keys=True),
            enabled=agent.enabled,
        )
        return record, changes
