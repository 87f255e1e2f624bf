"""Tests of `host_service.agents.agent`: what is stored of an agent is what comes back."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_service.agents.agent import Agent, Scope
from tests.unit.runs.samples import RUNNER, an_agent

# A lone surrogate is no Unicode: the rules keep it out of every text.
_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_names = st.lists(_texts, max_size=3).map(tuple)
_agents = st.builds(
    Agent,
    id=_texts,
    runner_id=_texts,
    name=_texts,
    config_json=st.sampled_from(["{}", '{ "big": 9007199254740993 }', '{"text": "你\\u4f60"}']),
    enabled=st.booleans(),
    timeout_seconds=st.floats(0, 1e6),
    models=_names,
    tools=_names,
    knowledge_bases=_names,
    skills=st.none() | _names,
    storage_areas=st.frozensets(st.sampled_from(["plugin", "workspace", "binding"])),
    history_beyond_conversation=st.booleans(),
    actions=st.frozensets(_texts, max_size=3),
    approval=st.sampled_from(["never", "always", "by_rule"]),
    state_enabled=st.booleans(),
    state_scopes=st.frozensets(st.sampled_from(Scope)),
    streaming=st.booleans(),
    reply=st.booleans(),
    max_message_characters=st.none() | st.integers(1, 2**31 - 1),
    fallback_target=_texts,
    follow_up=st.sampled_from(["", "queue", "parallel", "steer", "interrupt", "reject"]),
)


@given(_agents, st.integers(0, 2**63 - 1))
@settings(max_examples=40, deadline=None)
def test_every_field_comes_back_from_the_document_as_it_was(agent: Agent, revision: int) -> None:
    read = Agent.from_document(agent.to_document(), revision=revision)
    assert read == agent
    assert read.revision == revision
    assert hash(read) == hash(agent)


def test_document_names_every_field_so_that_a_changed_default_changes_no_agent() -> None:
    document = json.loads(an_agent().to_document())
    assert document["timeout_seconds"] == 300
    assert document["skills"] is None
    assert document["state_scopes"] == ["actor", "conversation"]
    assert document["storage_areas"] == ["binding", "plugin"]
    assert "revision" not in document


def test_fields_of_a_later_version_are_left_out_and_missing_ones_are_defaults() -> None:
    document = json.dumps({"id": "a", "runner_id": RUNNER, "invented_later": {"deep": [1]}})
    assert Agent.from_document(document, revision=3) == an_agent(id="a")


@pytest.mark.parametrize(
    "config_json", ['{"big": 9007199254740993, "less":-9223372036854775808}', ' {"a" :1.50} ', "{}"]
)
def test_configuration_stays_the_text_it_came_as(config_json: str) -> None:
    document = an_agent(config_json=config_json).to_document()
    assert Agent.from_document(document, revision=1).config_json == config_json


def test_equal_agents_have_equal_documents() -> None:
    one = an_agent(actions=frozenset(["b", "a"]), storage_areas=frozenset(["plugin", "binding"]))
    other = an_agent(actions=frozenset(["a", "b"]), storage_areas=frozenset(["binding", "plugin"]))
    assert one.to_document() == other.to_document()


def test_plugin_of_an_agent_is_that_of_its_runner() -> None:
    assert an_agent(runner_id="plugin:acme/desk/fast").plugin_id == "acme/desk"
