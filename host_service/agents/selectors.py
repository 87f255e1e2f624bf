"""What an agent's configuration selects: the resources that it grants to the agent's runs.

Selectors are fields of certain types, and no runner is treated otherwise than by its schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from host_service.agents.agent import Agent
from host_service.agents.config_schema import ConfigField, ConfigSchema
from host_service.validation.json_exact import read_exactly, write_exactly

_BASE_SELECTORS = frozenset({"knowledge-base-multi-selector"})
_CHAT_SELECTORS = frozenset({"llm-model-selector", "model-fallback-selector"})
_NO_CHOICE = frozenset({"", "__none__", "__none"})

MODEL, TOOL, KNOWLEDGE_BASE, FILE = "model", "tool", "knowledge_base", "file"


@dataclass(frozen=True, slots=True)
class Selection:
    """A resource that a configuration selects.

    Attributes:
        kind: `model`, `tool`, `knowledge_base` or `file`.
        name: Its id or name.
        field: The field of the configuration that selects it.
    """

    kind: str
    name: str
    field: str


@lru_cache(maxsize=256)
def selections(schema: ConfigSchema, config_json: str) -> tuple[Selection, ...]:
    """Return what a configuration selects, in the order of the schema, each resource once.

    Args:
        schema: The runner's.
        config_json: The configuration, defaults filled in.
    """
    config: Mapping[str, Any] = json.loads(config_json)
    found: dict[tuple[str, str], Selection] = {}
    for field in schema.fields:
        selector = _SELECTORS.get(field.type)
        if selector is None:
            continue
        kind, names = selector
        for name in names(config.get(field.name)):
            if isinstance(name, str) and name not in _NO_CHOICE:
                found.setdefault((kind, name), Selection(kind, name, field.name))
    return tuple(found.values())


def choose_model(schema: ConfigSchema, config_json: str, model_id: str) -> str | None:
    """Return a configuration with a model in its first selector of chat models.

    None where there is no such selector, or it has a choice already. Numbers keep their digits.
    """
    selector = next((field for field in schema.fields if field.type in _CHAT_SELECTORS), None)
    if selector is None:
        return None
    config = read_exactly(config_json)
    if not _is_unchosen(config.get(selector.name)):
        return None
    return write_exactly({**config, selector.name: model_id})


def release_model(schema: ConfigSchema, config_json: str, model_id: str) -> str | None:
    """Return a configuration without a model in its first selector of chat models.

    None where the model is not there, or is not alone there.
    """
    selector = next((field for field in schema.fields if field.type in _CHAT_SELECTORS), None)
    if selector is None:
        return None
    config = read_exactly(config_json)
    if [*_with_fallbacks(config.get(selector.name))] != [model_id]:
        return None
    return write_exactly({name: value for name, value in config.items() if name != selector.name})


def grant_knowledge_base(
    agent: Agent, schema: ConfigSchema | None, knowledge_base_id: str
) -> tuple[Agent, str]:
    """Return an agent whose runs may search a knowledge base, and what of it grants that.

    The first selector of knowledge bases in its configuration does; without one, or as long as its
    runner is not known, its resource policy. Numbers keep their digits.
    """
    selector = None
    if schema is not None:
        selector = next(filter(_selects_bases, schema.fields), None)
        for each in selections(schema, schema.fill(agent.config_json)):
            if (each.kind, each.name) == (KNOWLEDGE_BASE, knowledge_base_id):
                return agent, f"config.{each.field}"
    if knowledge_base_id in agent.knowledge_bases:
        return agent, "resources.knowledge_bases"
    if schema is None or selector is None:
        ids = (*agent.knowledge_bases, knowledge_base_id)
        return replace(agent, knowledge_bases=ids), "resources.knowledge_bases"
    chosen = read_exactly(schema.fill(agent.config_json)).get(selector.name)
    selected = [*(chosen if isinstance(chosen, list) else ()), knowledge_base_id]
    config = {**read_exactly(agent.config_json), selector.name: selected}
    return replace(agent, config_json=write_exactly(config)), f"config.{selector.name}"


def revoke_knowledge_base(
    agent: Agent, schema: ConfigSchema | None, knowledge_base_id: str
) -> Agent:
    """Return an agent that neither selects a knowledge base nor has it by its policy."""
    ids = tuple(each for each in agent.knowledge_bases if each != knowledge_base_id)
    config = read_exactly(agent.config_json)
    names = {field.name for field in (schema.fields if schema else ()) if _selects_bases(field)}
    kept = {
        name: [each for each in value if each != knowledge_base_id]
        if name in names and isinstance(value, list)
        else value
        for name, value in config.items()
    }
    config_json = agent.config_json if kept == config else write_exactly(kept)
    return replace(agent, knowledge_bases=ids, config_json=config_json)


def _selects_bases(field: ConfigField) -> bool:
    return field.type in _BASE_SELECTORS


def _is_unchosen(value: object) -> bool:
    if isinstance(value, dict):
        value = value.get("primary")
    return value is None or (isinstance(value, str) and value in _NO_CHOICE)


def _one(value: object) -> Iterator[object]:
    yield value


def _several(value: object) -> Iterator[object]:
    if isinstance(value, list):
        yield from value


def _with_fallbacks(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield value.get("primary")
        yield from _several(value.get("fallbacks"))
    else:
        yield value


_SELECTORS: Mapping[str, tuple[str, Callable[[object], Iterator[object]]]] = {
    "llm-model-selector": (MODEL, _one),
    "rerank-model-selector": (MODEL, _one),
    "embedding-model-selector": (MODEL, _one),
    "model-fallback-selector": (MODEL, _with_fallbacks),
    "knowledge-base-multi-selector": (KNOWLEDGE_BASE, _several),
    "tool-multi-selector": (TOOL, _several),
    "file": (FILE, _one),
}
