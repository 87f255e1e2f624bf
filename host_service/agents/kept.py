"""An agent as its runs keep it: all of one revision, without the values of secret fields.

What a run keeps lies in the ledger for as long as the run does, is exported with it, and is shown
to whoever wants the run explained. So it has the names of secret fields and not their values: a run
that is started later, or once more, takes those from the agent as it is then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    if not withheld:
        return agent.to_document().encode()
    shown = {name: value for name, value in config.items() if name not in withheld}
    document = json.loads(replace(agent, config_json=write_exactly(shown)).to_document())
    return json.dumps(
        {**document, _WITHHELD: withheld}, ensure_ascii=False, sort_keys=True
    ).encode()


def withheld_from(kept: bytes) -> Sequence[str]:
    """Return the names of the configuration fields whose values a run did not keep."""
    names: Sequence[str] = json.loads(kept).get(_WITHHELD, ())
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
