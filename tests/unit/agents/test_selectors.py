"""Tests of `host_service.agents.selectors`: what a configuration grants by its fields' types."""

import json
from typing import Any

import pytest

from host_service.agents.agent import Agent
from host_service.agents.config_schema import ConfigField, ConfigSchema
from host_service.agents.selectors import (
    Selection,
    choose_model,
    grant_knowledge_base,
    revoke_knowledge_base,
    selections,
)

SCHEMA = ConfigSchema(
    (
        ConfigField(name="words", type="string"),
        ConfigField(name="model", type="llm-model-selector"),
        ConfigField(name="models", type="model-fallback-selector"),
        ConfigField(name="rerank", type="rerank-model-selector"),
        ConfigField(name="vectors", type="embedding-model-selector"),
        ConfigField(name="bases", type="knowledge-base-multi-selector"),
        ConfigField(name="tools", type="tool-multi-selector"),
        ConfigField(name="manual", type="file"),
        ConfigField(name="later", type="hologram-selector"),
    )
)


def found(**config: Any) -> list[tuple[str, str, str]]:
    return [(each.kind, each.name, each.field) for each in selections(SCHEMA, json.dumps(config))]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, []),
        ({"words": "small"}, []),
        ({"model": "small"}, [("model", "small", "model")]),
        ({"models": "small"}, [("model", "small", "models")]),
        ({"models": {"primary": "a"}}, [("model", "a", "models")]),
        (
            {"models": {"primary": "a", "fallbacks": ["b", "", "a"]}},
            [("model", "a", "models"), ("model", "b", "models")],
        ),
        ({"models": {"primary": "__none__", "fallbacks": ["b"]}}, [("model", "b", "models")]),
        ({"rerank": "r", "vectors": "v"}, [("model", "r", "rerank"), ("model", "v", "vectors")]),
        (
            {"bases": ["one", "__none", "two"]},
            [("knowledge_base", "one", "bases"), ("knowledge_base", "two", "bases")],
        ),
        ({"tools": ["files__read"]}, [("tool", "files__read", "tools")]),
        ({"manual": "artifact-1"}, [("file", "artifact-1", "manual")]),
        ({"later": "x", "unknown": "y"}, []),
        ({"model": "same", "models": "same"}, [("model", "same", "model")]),
        # A schema that changed since the agent was saved may find anything in them.
        ({"model": 7, "models": [], "bases": "x", "tools": [1, None], "manual": {}}, []),
    ],
)
def test_selectors_grant_what_they_name(
    config: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    assert found(**config) == expected


@pytest.mark.parametrize("none", ["", "__none__", "__none"])
def test_no_choice_grants_nothing(none: str) -> None:
    assert found(model=none, models=none, bases=[none], tools=[none], manual=none) == []
    assert found(models={"primary": none, "fallbacks": [none]}) == []


def test_first_model_goes_into_the_first_selector_that_has_no_choice() -> None:
    chosen = choose_model(SCHEMA, '{"size": 9007199254740993, "f": 0.10}', "small")
    assert chosen == '{"size":9007199254740993,"f":0.10,"model":"small"}'
    assert choose_model(SCHEMA, '{"model": "__none__"}', "small") == '{"model":"small"}'
    assert choose_model(SCHEMA, '{"model": "large"}', "small") is None
    assert choose_model(ConfigSchema(), "{}", "small") is None
    fallback = ConfigSchema((ConfigField(name="m", type="model-fallback-selector"),))
    assert choose_model(fallback, '{"m": {"primary": ""}}', "small") == '{"m":"small"}'
    assert choose_model(fallback, '{"m": {"primary": "x"}}', "small") is None
    assert selections(fallback, '{"m":"small"}') == (Selection("model", "small", "m"),)


def an_agent(config_json: str = "{}", *bases: str) -> Agent:
    return Agent(id="a", runner_id="plugin:a/b/c", config_json=config_json, knowledge_bases=bases)


def test_knowledge_base_goes_into_the_first_selector_of_some() -> None:
    agent = an_agent('{"size": 9007199254740993, "bases": ["old"]}')
    granted, where = grant_knowledge_base(agent, SCHEMA, "new")
    assert granted.config_json == '{"size":9007199254740993,"bases":["old","new"]}'
    assert (where, granted.knowledge_bases) == ("config.bases", ())
    assert grant_knowledge_base(granted, SCHEMA, "new") == (granted, "config.bases")


def test_default_of_the_selector_is_kept_beside_what_is_granted() -> None:
    field = ConfigField(
        name="bases", type="knowledge-base-multi-selector", default_json='["shared"]'
    )
    granted, _ = grant_knowledge_base(an_agent(), ConfigSchema((field,)), "new")
    assert granted.config_json == '{"bases":["shared","new"]}'


@pytest.mark.parametrize("schema", [None, ConfigSchema()], ids=["unknown runner", "no selector"])
def test_knowledge_base_goes_into_the_policy_without_a_selector(
    schema: ConfigSchema | None,
) -> None:
    granted, where = grant_knowledge_base(an_agent("{}", "old"), schema, "new")
    assert (where, granted.knowledge_bases) == ("resources.knowledge_bases", ("old", "new"))
    assert grant_knowledge_base(granted, schema, "new") == (granted, where)
    # What the policy grants need not be selected as well.
    assert grant_knowledge_base(granted, SCHEMA, "new") == (granted, where)


def test_knowledge_base_is_taken_out_of_selectors_and_policy() -> None:
    agent = an_agent('{"words": "gone", "size": 0.10, "bases": ["gone", "kept"]}', "gone", "kept")
    without = revoke_knowledge_base(agent, SCHEMA, "gone")
    assert without.config_json == '{"words":"gone","size":0.10,"bases":["kept"]}'
    assert without.knowledge_bases == ("kept",)
    assert revoke_knowledge_base(without, SCHEMA, "gone") == without
    # Which fields select some is not known as long as the runner is not.
    assert revoke_knowledge_base(agent, None, "gone").config_json == agent.config_json
