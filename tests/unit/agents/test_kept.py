"""Tests of `host_service.agents.kept`: what a run keeps of its agent, and how it comes back."""

import json
from dataclasses import replace

import pytest

from host_service.agents.config_schema import ConfigField, ConfigSchema
from host_service.agents.kept import Restored, keep, restore, withheld_from
from tests.unit.runs.samples import an_agent

CANARY = "canary-7f3a"
SCHEMA = ConfigSchema(
    (
        ConfigField(name="token", type="secret"),
        ConfigField(name="spare", type="secret"),
        ConfigField(name="limit", type="integer"),
        ConfigField(name="title", type="string"),
    )
)
CONFIG = f'{{"limit": 9007199254740993.10, "token": "{CANARY}", "title": "世界"}}'
AGENT = replace(an_agent(config_json=CONFIG, models=("m",), timeout_seconds=7.5), revision=3)


def test_values_of_secret_fields_are_not_kept_and_everything_else_is() -> None:
    kept = keep(AGENT, SCHEMA)
    assert CANARY not in kept.decode()
    assert json.loads(kept)["config_json"] == '{"limit":9007199254740993.10,"title":"世界"}'
    assert withheld_from(kept) == ["token"]
    assert json.loads(kept)["models"] == ["m"]


def test_no_value_is_kept_while_the_runner_is_not_known() -> None:
    kept = keep(AGENT, None)
    assert json.loads(kept)["config_json"] == "{}"
    assert withheld_from(kept) == ["limit", "title", "token"]
    assert restore(kept, revision=3, now=AGENT).missing == ()


def test_without_secrets_the_agent_is_kept_as_it_is_stored() -> None:
    agent = an_agent(config_json='{"limit": 1}')
    kept = keep(agent, SCHEMA)
    assert json.loads(kept) == {**json.loads(agent.to_document()), "withheld": []}
    assert restore(kept, revision=3, now=None) == Restored(agent)


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_values_come_back_from_the_agent_of_the_same_revision(schema: ConfigSchema | None) -> None:
    restored = restore(keep(AGENT, schema), revision=3, now=AGENT)
    assert (restored.missing, restored.newer) == ((), None)
    assert restored.agent.revision == 3
    assert json.loads(restored.agent.config_json) == json.loads(CONFIG)
    assert "9007199254740993.10" in restored.agent.config_json
    assert replace(restored.agent, config_json=CONFIG) == AGENT


def test_values_of_a_later_revision_are_taken_and_told() -> None:
    now = replace(
        AGENT, revision=5, models=(), config_json='{"token": "renewed", "title": "other"}'
    )
    restored = restore(keep(AGENT, SCHEMA), revision=3, now=now)
    assert (restored.missing, restored.newer) == ((), 5)
    config = json.loads(restored.agent.config_json)
    assert (config["token"], config["title"], restored.agent.models) == ("renewed", "世界", ("m",))


@pytest.mark.parametrize(
    "now",
    [
        None,
        replace(AGENT, config_json="{}"),
        replace(AGENT, runner_id="plugin:acme/other/default"),
    ],
)
def test_values_that_are_gone_are_told(now: object) -> None:
    restored = restore(keep(AGENT, SCHEMA), revision=3, now=now)  # type: ignore[arg-type]
    assert (restored.missing, restored.newer) == (("token",), None)
    assert "token" not in json.loads(restored.agent.config_json)
