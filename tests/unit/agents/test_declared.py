"""Tests of applying more than agents and bindings, over real stores."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from host_service.agents.changes import Outcome
from host_service.agents.config_schema import ConfigField, ConfigSchema
from host_service.agents.declared import Declared
from host_service.agents.directory import AgentDirectory
from host_service.authorization.callers import Role
from host_service.authorization.declared_keys import DeclaredKey
from host_service.authorization.policy import Allowance, WorkspacePolicy
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.catalogue.model import Model
from host_service.catalogue.tool_server import ToolServer
from host_service.errors import InvalidArgument
from stores import Stores, open_stores
from stores.records import CatalogueKind
from stores.retention import RetentionPolicy
from stores.secret_keys import new_secret_key, parse_secret_keys
from stores.secrets import Secret, SecretChange, SecretOwner
from tests.unit.agents.directories import apply, directory_over
from tests.unit.runs.samples import RUNNER, an_agent

SCHEMA = ConfigSchema(
    (
        ConfigField(name="model", type="llm-model-selector"),
        ConfigField(name="tools", type="tool-multi-selector"),
    )
)
MODEL = Model(id="small", kind="chat", provider="openai", model_name="small")
SERVER = ToolServer(id="files", command="mcp-files", env=("TOKEN",))
OF_MODEL = SecretOwner(CatalogueKind.MODEL, "small")
OF_SERVER = SecretOwner(CatalogueKind.TOOL_SERVER, "files")


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    keys = parse_secret_keys(new_secret_key(), source="the test")
    opened = await open_stores(f"sqlite:///{tmp_path / 'mesh.db'}", secret_keys=keys)
    yield opened
    await opened.close()


@pytest.fixture
def directory(stores: Stores) -> AgentDirectory:
    return directory_over(stores, schema_of=lambda _runner_id: SCHEMA)


def having(owner: SecretOwner, name: str, text: str | None) -> SecretChange:
    return SecretChange(owner, name, None if text is None else Secret(text))


def declaring(*models: Model, **more: Any) -> Declared:
    return Declared(models={f"models[{i}]": each for i, each in enumerate(models)}, **more)


def kinds(outcome: Outcome) -> list[tuple[str, str, str]]:
    return [(each.object, each.id, each.kind) for each in outcome.changes]


async def test_everything_is_on_the_shelf_at_once_and_after_a_start(
    directory: AgentDirectory, stores: Stores
) -> None:
    base, policy = KnowledgeBase(id="handbook"), WorkspacePolicy(id="acme", instructions="x")
    declared = declaring(
        MODEL,
        tool_servers={"tool_servers[0]": ToolServer(id="files", command="c")},
        knowledge_bases={"knowledge_bases[0]": base},
        policies={"policies[0]": policy},
        keys={"keys[0]": DeclaredKey(name="ci", role=Role.VIEWER, secret=Secret("s" * 32))},
    )
    outcome = await directory.apply(declared)
    assert kinds(outcome) == [
        ("model", "small", "created"),
        ("tool_server", "files", "created"),
        ("knowledge_base", "handbook", "created"),
        ("policy", "acme", "created"),
        ("key", "ci", "created"),
    ]
    started = directory_over(stores)
    await started.reload()
    for shelf in (directory.shelf, started.shelf):
        assert (shelf.model("small"), shelf.knowledge_base("handbook")) == (MODEL, base)
        assert shelf.policies["acme"] == policy
    assert [key.name for key in await stores.keys.list()] == ["ci"]
    revision = await stores.catalogue.revision()
    assert {kind for _, _, kind in kinds(await directory.apply(declared))} == {"unchanged"}
    assert await stores.catalogue.revision() == revision


async def test_dry_run_tells_the_same_and_changes_nothing(
    directory: AgentDirectory, stores: Stores
) -> None:
    declared = declaring(MODEL, secrets=[having(OF_MODEL, "api_key", "k")])
    told = await directory.apply(declared, dry_run=True)
    assert directory.shelf.models == {}
    assert await stores.secrets.names(OF_MODEL) == []
    assert kinds(await directory.apply(declared)) == kinds(told)


async def test_change_of_a_secret_is_told_and_never_shown(
    directory: AgentDirectory, stores: Stores
) -> None:
    async def fields(secret: str | None) -> Any:
        declared = declaring(MODEL, secrets=[having(OF_MODEL, "api_key", secret)])
        return (await directory.apply(declared)).changes[0].fields

    await directory.apply(declaring(MODEL))
    assert await fields("one") == (("api_key", None, '"***"'),)
    assert await fields("one") == ()
    assert await fields("two") == (("api_key", '"***"', '"***"'),)
    assert await stores.secrets.get(OF_MODEL, "api_key") == Secret("two")
    assert await fields(None) == (("api_key", '"***"', None),)
    assert await fields(None) == ()
    assert await stores.secrets.names(OF_MODEL) == []


async def test_server_must_have_a_value_for_each_name_and_loses_those_it_does_not_name(
    directory: AgentDirectory, stores: Stores
) -> None:
    declared = declaring(tool_servers={"tool_servers[0]": SERVER})
    with pytest.raises(InvalidArgument) as caught:
        await directory.apply(declared)
    assert [fault.field for fault in caught.value.faults] == ["tool_servers[0].command.env"]
    given = [having(OF_SERVER, "env.TOKEN", "t")]
    await directory.apply(declaring(tool_servers={"tool_servers[0]": SERVER}, secrets=given))
    assert kinds(await directory.apply(declared)) == [("tool_server", "files", "unchanged")]
    bare = ToolServer(id="files", command="mcp-files")
    await directory.apply(declaring(tool_servers={"tool_servers[0]": bare}))
    assert await stores.secrets.names(OF_SERVER) == []


async def test_every_fault_is_told_and_nothing_is_stored(
    directory: AgentDirectory, stores: Stores
) -> None:
    operator = DeclaredKey(name="operator", role=Role.VIEWER, secret=Secret("s" * 32))
    declared = declaring(
        MODEL,
        agents={"agents[0]": an_agent(config_json='{"model": 7}')},
        tool_servers={"tool_servers[0]": SERVER},
        keys={"keys[0]": operator},
        secrets=[having(OF_MODEL, "api_key", "k")],
    )
    with pytest.raises(InvalidArgument) as caught:
        await directory.apply(declared)
    assert [fault.field for fault in caught.value.faults] == [
        "agents[0].config_json.model",
        "tool_servers[0].command.env",
        "keys[0].name",
    ]
    assert await stores.catalogue.revision() == 0
    assert await stores.secrets.names(OF_MODEL) == []


async def test_what_is_named_and_not_there_is_a_warning(directory: AgentDirectory) -> None:
    off = Model(id="off", kind="chat", provider="p", model_name="m", enabled=False)
    agent = an_agent(
        config_json='{"model": "gone", "tools": ["files__read"]}', models=("small", "off")
    )
    declared = declaring(
        MODEL,
        off,
        agents={"agents[0]": agent},
        knowledge_bases={"knowledge_bases[0]": KnowledgeBase(id="kb", embedding_model="vectors")},
    )
    lost = "which is not there: runs go without it"
    assert (await directory.apply(declared)).warnings == (
        f"agent 'helper' names model 'gone' in config.model, {lost}",
        f"agent 'helper' names tool 'files__read' in config.tools, {lost}",
        "agent 'helper' names model 'off' in resources.models, which is disabled",
        f"knowledge base 'kb' names model 'vectors' in embedding_model, {lost}",
    )


async def test_first_model_fills_the_empty_selector_of_the_default_agent(
    directory: AgentDirectory,
) -> None:
    await directory.ensure_default(RUNNER)
    vectors = Model(id="vectors", kind="embedding", provider="p", model_name="m")
    assert kinds(await directory.apply(declaring(vectors))) == [("model", "vectors", "created")]
    assert kinds(await directory.apply(declaring(MODEL), dry_run=True))[1:] == [
        ("agent", "default", "updated")
    ]
    outcome = await directory.apply(declaring(MODEL))
    assert outcome.changes[1].fields == (("config.model", None, '"small"'),)
    assert directory.agents["default"].config_json == '{"model":"small"}'
    second = Model(id="large", kind="chat", provider="p", model_name="m")
    assert kinds(await directory.apply(declaring(second))) == [("model", "large", "created")]
    assert directory.agents["default"].config_json == '{"model":"small"}'


async def test_default_agent_is_filled_when_its_runner_becomes_known(stores: Stores) -> None:
    known: list[ConfigSchema] = []
    directory = directory_over(stores, schema_of=lambda _runner_id: known[0] if known else None)
    await directory.ensure_default(RUNNER)
    await directory.apply(declaring(MODEL))
    await directory.fill_default()
    assert directory.agents["default"].config_json == "{}"
    known.append(SCHEMA)
    await directory.fill_default()
    assert directory.agents["default"].config_json == '{"model":"small"}'
    revision = await stores.catalogue.revision()
    await directory.fill_default()
    assert await stores.catalogue.revision() == revision


async def test_choice_of_the_default_agent_stays(directory: AgentDirectory) -> None:
    await apply(directory, [an_agent(id="default", config_json='{"model": "mine"}')], [])
    assert kinds(await directory.apply(declaring(MODEL))) == [("model", "small", "created")]


async def test_only_the_first_model_of_all_fills_it(directory: AgentDirectory) -> None:
    await directory.apply(declaring(MODEL))
    await directory.ensure_default(RUNNER)
    await apply(directory, [an_agent(id="default")], [])
    second = Model(id="large", kind="chat", provider="p", model_name="m")
    assert kinds(await directory.apply(declaring(second))) == [("model", "large", "created")]


async def test_default_agent_that_is_declared_is_as_it_is_declared(
    directory: AgentDirectory,
) -> None:
    await directory.ensure_default(RUNNER)
    declared = declaring(
        MODEL,
        agents={"agents[0]": an_agent(id="default")},
        agent_ids=frozenset({"default"}),
    )
    await directory.apply(declared)
    assert directory.agents["default"].config_json == "{}"


async def test_removed_thing_takes_its_secrets_along(
    directory: AgentDirectory, stores: Stores
) -> None:
    await directory.apply(declaring(MODEL, secrets=[having(OF_MODEL, "api_key", "k")]))
    assert await directory.delete_item(CatalogueKind.MODEL, "small") is True
    assert await directory.delete_item(CatalogueKind.MODEL, "small") is False
    assert directory.shelf.models == {}
    assert await stores.secrets.names(OF_MODEL) == []


async def test_retention_of_a_policy_is_what_the_purge_reads(
    directory: AgentDirectory, stores: Stores
) -> None:
    retention = RetentionPolicy(max_age_seconds=86_400)
    policy = WorkspacePolicy(
        id="acme", allowance=Allowance(models=frozenset()), retention=retention
    )
    await directory.apply(Declared(policies={"policies[0]": policy}))
    assert await stores.retention.policies() == {"acme": retention}
    longer = RetentionPolicy(max_age_seconds=90_000)
    await stores.retention.set_policy("acme", longer)
    await directory.reload()
    kept = directory.shelf.policies["acme"]
    assert (kept.retention, kept.allowance) == (longer, policy.allowance)
