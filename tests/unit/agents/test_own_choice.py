"""The host's own models in the catalogue's view, and the default agent that runs with one."""

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from host_service.agents.agent import Agent
from host_service.agents.config_schema import ConfigField, ConfigSchema
from host_service.agents.declared import Declared
from host_service.agents.directory import AgentDirectory
from host_service.agents.own_choice import with_own_model
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.catalogue.model import Model, Origin
from host_service.errors import Conflict
from stores import Stores, open_stores
from stores.secret_keys import new_secret_key, parse_secret_keys
from tests.unit.agents.directories import apply, directory_over
from tests.unit.runs.samples import RUNNER, an_agent

SCHEMA = ConfigSchema((ConfigField(name="model", type="model-fallback-selector"),))
OWN = Model(id="rehearsal", kind="chat", provider="rehearsal", model_name="r", origin=Origin.HOST)
REAL = Model(id="real", kind="chat", provider="openai", model_name="real")


def _offered(stored: Mapping[str, Model]) -> Iterator[Model]:
    if not any(each.kind == "chat" for each in stored.values()):
        yield OWN


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    """Stores that keep secrets."""
    keys = parse_secret_keys(new_secret_key(), source="the test")
    opened = await open_stores(f"sqlite:///{tmp_path / 'mesh.db'}", secret_keys=keys)
    yield opened
    await opened.close()


@pytest.fixture
async def directory(stores: Stores) -> AgentDirectory:
    """The directory of a first start."""
    made = directory_over(stores, schema_of=lambda _runner_id: SCHEMA, offered=_offered)
    await made.ensure_default(RUNNER)
    return made


def _adding(*models: Model) -> Declared:
    return Declared(models={f"models[{i}]": each for i, each in enumerate(models)})


def _running(directory: AgentDirectory, agent_id: str = "default") -> Agent:
    return with_own_model(directory.named(agent_id), directory.shelf, SCHEMA)


async def test_an_own_model_is_on_the_shelf_and_stored_nowhere(
    directory: AgentDirectory, stores: Stores
) -> None:
    assert directory.shelf.model("rehearsal") == OWN
    assert await stores.catalogue.list_items() == []
    await directory.apply(_adding(Model(id="v", kind="embedding", provider="p", model_name="v")))
    assert [each.id for each in await stores.catalogue.list_items()] == ["v"]
    assert set(directory.shelf.models) == {"rehearsal", "v"}


async def test_the_default_agent_runs_with_it_and_is_stored_without(
    directory: AgentDirectory,
) -> None:
    assert _running(directory).config_json == '{"model":"rehearsal"}'
    assert directory.agents["default"].config_json == "{}"
    assert directory.models_of(directory.agents["default"]) == ["rehearsal"]


async def test_the_first_real_model_is_in_its_place(directory: AgentDirectory) -> None:
    outcome = await directory.apply(_adding(REAL))
    assert [(each.object, each.id) for each in outcome.changes] == [
        ("model", "real"), ("agent", "default"),
    ]  # fmt: skip
    assert set(directory.shelf.models) == {"real"}
    assert _running(directory).config_json == '{"model":"real"}'


async def test_a_choice_stays_and_so_does_every_other_agent(directory: AgentDirectory) -> None:
    chosen = an_agent(id="default", config_json='{"model": {"primary": "gone"}}')
    await apply(directory, [chosen, an_agent(id="helper")], [])
    assert _running(directory).config_json == chosen.config_json
    assert _running(directory, "helper").config_json == "{}"


async def test_one_that_operators_declare_is_in_the_place_of_the_own_one(
    directory: AgentDirectory, stores: Stores
) -> None:
    declared = Model(id="rehearsal", kind="chat", provider="rehearsal", model_name="declared")
    outcome = await directory.apply(_adding(declared))
    assert outcome.changes[0].kind == "created"
    assert directory.shelf.models["rehearsal"].origin is Origin.CATALOGUE
    assert [each.id for each in await stores.catalogue.list_items()] == ["rehearsal"]


async def test_an_agent_may_name_an_own_model_without_a_warning(directory: AgentDirectory) -> None:
    declared = Declared.of([an_agent(config_json='{"model": "rehearsal"}')])
    assert (await directory.apply(declared)).warnings == ()


async def test_an_own_model_that_gives_way_in_the_same_apply_is_missed(
    directory: AgentDirectory,
) -> None:
    agent = an_agent(config_json='{"model": "rehearsal"}')
    declared = Declared(
        models={"models[0]": REAL},
        agents={"agents[0]": agent},
        agent_ids=frozenset({agent.id}),
    )
    (warning,) = (await directory.apply(declared)).warnings
    assert "names model 'rehearsal'" in warning


async def test_a_model_that_is_selected_is_left(directory: AgentDirectory) -> None:
    base = KnowledgeBase(id="docs", name="docs", embedding_model="real")
    agents = {"agents[0]": an_agent(id="helper", models=("real",))}
    await directory.apply(
        Declared(
            models={"models[0]": REAL},
            knowledge_bases={"knowledge_bases[0]": base},
            agents=agents,
            agent_ids=frozenset({"helper"}),
        )
    )
    with pytest.raises(Conflict) as raised:
        await directory.delete_model("real", unless_selected=True)
    told = raised.value.message
    assert "agent 'default'" in told
    assert "agent 'helper'" in told
    assert "knowledge base 'docs'" in told
    assert "real" in directory.shelf.models


async def test_by_force_it_goes_and_the_default_agent_is_free_again(
    directory: AgentDirectory,
) -> None:
    await directory.apply(_adding(REAL))
    assert await directory.delete_model("real", unless_selected=False)
    assert directory.agents["default"].config_json == "{}"
    assert _running(directory).config_json == '{"model":"rehearsal"}'
    again = Model(id="again", kind="chat", provider="p", model_name="m")
    await directory.apply(_adding(again))
    assert _running(directory).config_json == '{"model":"again"}'


async def test_a_choice_that_has_fallbacks_is_not_taken_away(directory: AgentDirectory) -> None:
    chosen = '{"model": {"primary": "real", "fallbacks": ["other"]}}'
    await directory.apply(_adding(REAL))
    await apply(directory, [an_agent(id="default", config_json=chosen)], [])
    await directory.delete_model("real", unless_selected=False)
    assert directory.agents["default"].config_json == chosen


async def test_one_that_nobody_selects_goes_at_once_and_own_ones_cannot(
    directory: AgentDirectory,
) -> None:
    await directory.apply(_adding(REAL))
    other = Model(id="other", kind="chat", provider="p", model_name="m")
    await directory.apply(_adding(other))
    assert await directory.delete_model("other", unless_selected=True)
    assert not await directory.delete_model("rehearsal", unless_selected=True)
