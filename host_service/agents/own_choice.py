"""The model that the default agent runs with while nobody has chosen one: the host's own best.

The choice is made when a run starts and is stored nowhere. So it follows what the host offers,
gives way to what an operator chooses, and never has to be told apart from that.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from host_service.agents.agent import Agent
from host_service.agents.config_schema import ConfigSchema
from host_service.agents.selectors import choose_model
from host_service.catalogue.model import CHAT, Origin
from host_service.catalogue.shelf import Shelf

#: The agent that a first start creates.
DEFAULT_AGENT_ID = "default"


def with_own_model(agent: Agent, shelf: Shelf, schema: ConfigSchema) -> Agent:
    """Return an agent as it runs.

    Args:
        agent: Any agent; none but the default one is changed.
        shelf: What there is.
        schema: The configuration schema of the agent's runner.
    """
    return _filled(agent, shelf, schema) if agent.id == DEFAULT_AGENT_ID else agent


# Asked for with every run of the default agent; a shelf is made once for each change.
@lru_cache(maxsize=4)
def _filled(agent: Agent, shelf: Shelf, schema: ConfigSchema) -> Agent:
    own = (
        model
        for model in shelf.models.values()
        if model.origin is not Origin.CATALOGUE and model.kind == CHAT
    )
    model = next(own, None)
    chosen = None if model is None else choose_model(schema, agent.config_json, model.id)
    return agent if chosen is None else replace(agent, config_json=chosen)
