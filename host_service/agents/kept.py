"""An agent as its runs keep it: all of one revision, without the values of secret fields.

What a run keeps lies in the ledger for as long as the run does, is exported with it, and is shown
to whoever wants the run explained. So it has the names of secret fields and not their values: a run
that is started later, or once more, takes those from the agent as it is then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from host_service.agents.agent import Agent
from host_service.agents.config_schema import ConfigSchema
from host_service.validation.json_exact import read_exactly, write_exactly

_WITHHELD = "withheld"


@dataclass(frozen=True, slots=True)
class Restored:
    """An agent as a run keeps it, with the values of its secret fields put back.

    Attributes:
        agent: The agent; fields whose values are gone are not set.
        missing: Fields whose values are gone: the agent is, or no longer sets them.
        newer: The agent's revision that values were taken from, where that is not the kept one;
            None where it is, or none were taken.
    """

    agent: Agent
    missing: tuple[str, ...] = ()
    newer: int | None = None


def keep(agent: Agent, schema: ConfigSchema | None) -> bytes:
    """Return what a run keeps of its agent.

    Args:
        agent: The agent.
        schema: Its runner's schema; None while the runner is not known, when any field of the
            configuration may be a secret.
    """
    config: dict[str, Any] = read_exactly(agent.config_json)
    withheld = sorted(config if schema is None else schema.secret_names & config.keys())
    shown = {name: value for name, value in config.items() if name not in withheld}
    config_json = write_exactly(shown) if withheld else agent.config_json
    document = json.loads(replace(agent, config_json=config_json).to_document())
    return json.dumps(
        {**document, _WITHHELD: withheld}, ensure_ascii=False, sort_keys=True
    ).encode()


class KeptAgents:
    """What runs keep of their agents, made once for each revision.

    Args:
        schema_of: Gives the schema of a runner; None for one that is not known.
    """

    def __init__(self, *, schema_of: Callable[[str], ConfigSchema | None]) -> None:
        self._schema_of = schema_of
        self._made: dict[str, tuple[Agent, ConfigSchema | None, bytes]] = {}

    def of(self, agent: Agent) -> bytes:
        """Return what a run keeps of its agent."""
        schema = self._schema_of(agent.runner_id)
        made = self._made.get(agent.id)
        # Both are replaced whole when they change: to compare them would cost every run.
        if made is None or made[0] is not agent or made[1] is not schema:
            made = self._made[agent.id] = (agent, schema, keep(agent, schema))
        return made[2]


def withheld_from(kept: bytes) -> Sequence[str] | None:
    """Return the names of the configuration fields whose values a run did not keep.

    None for what was kept before any value was withheld, which may hold secrets.
    """
    names: Sequence[str] | None = json.loads(kept).get(_WITHHELD)
    return names


def restore(kept: bytes, *, revision: int, now: Agent | None) -> Restored:
    """Return the agent that a run keeps, with the values that were withheld put back.

    Args:
        kept: What `keep` returned.
        revision: The agent's revision then.
        now: The agent as it is now; None where it is gone.
    """
    agent = Agent.from_document(kept.decode(), revision=revision)
    withheld = withheld_from(kept)
    if not withheld:
        return Restored(agent)
    # Another runner's field of the same name is another secret.
    same = now is not None and now.runner_id == agent.runner_id
    values: dict[str, Any] = read_exactly(now.config_json) if now is not None and same else {}
    found = {name: values[name] for name in withheld if name in values}
    config: dict[str, Any] = {**read_exactly(agent.config_json), **found}
    return Restored(
        agent=replace(agent, config_json=write_exactly(config)),
        missing=tuple(name for name in withheld if name not in found),
        newer=now.revision if now is not None and found and now.revision != revision else None,
    )
