"""Tests of `host_service.agents.sealing`: secrets of agents, over real stores."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from host_service.agents.agent import Agent
from host_service.agents.config_schema import ConfigField, ConfigSchema
from host_service.agents.declared import Declared
from host_service.agents.directory import AgentDirectory
from stores import Stores, open_stores
from stores.records import AgentRecord
from stores.secret_keys import new_secret_key, parse_secret_keys
from stores.secrets import SecretOwner
from tests.unit.runs.samples import NOON, RUNNER, an_agent

CANARY = "canary-2b7e"
SCHEMA = ConfigSchema(
    (ConfigField(name="token", type="secret"), ConfigField(name="title", type="string"))
)
CONFIG = f'{{"token": "{CANARY}", "title": "世界"}}'


def directory_on(
    stores: Stores, schemas: Mapping[str, ConfigSchema] | None = None
) -> AgentDirectory:
    known = {RUNNER: SCHEMA} if schemas is None else schemas
    return AgentDirectory(
        catalogue=stores.catalogue,
        secrets=stores.secrets,
        keys=stores.keys,
        clock=lambda: NOON,
        schema_of=known.get,
    )


async def apply(directory: AgentDirectory, *agents: Agent, dry_run: bool = False) -> list[str]:
    outcome = await directory.apply(Declared.of(agents, ()), dry_run=dry_run)
    return [change.kind for change in outcome.changes]


def holding(folder: Path) -> list[Path]:
    """Return the files that hold the secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if CANARY.encode() in path.read_bytes()]


async def document(stores: Stores) -> str:
    record = await stores.catalogue.get_agent("helper")
    assert record is not None
    return record.document


def config_of(directory: AgentDirectory) -> object:
    return json.loads(directory.agents["helper"].config_json)


@pytest.mark.parametrize("schemas", [{RUNNER: SCHEMA}, {}])
async def test_values_are_sealed_in_the_database_and_whole_in_memory(
    stores: Stores, tmp_path: Path, schemas: Mapping[str, ConfigSchema]
) -> None:
    directory = directory_on(stores, schemas)
    assert await apply(directory, an_agent(config_json=CONFIG)) == ["created"]
    assert config_of(directory) == json.loads(CONFIG)
    stored = json.loads(await document(stores))
    shown = {"title": "世界"} if schemas else {}
    assert json.loads(stored["config_json"]) == shown
    assert stored["withheld"] == (["token"] if schemas else ["title", "token"])
    assert holding(tmp_path) == []
    started = directory_on(stores, schemas)
    await started.reload()
    assert config_of(started) == json.loads(CONFIG)
    assert CANARY not in repr(started.agents)


async def test_what_is_applied_again_is_not_written_again(stores: Stores) -> None:
    directory = directory_on(stores)
    await apply(directory, an_agent(config_json=CONFIG))
    revision = await stores.catalogue.revision()
    other = f'{{ "title":"世界","token":"{CANARY}" }}'
    assert await apply(directory, an_agent(config_json=other)) == ["unchanged"]
    assert await stores.catalogue.revision() == revision


async def test_change_of_a_value_alone_is_a_new_revision(stores: Stores) -> None:
    directory = directory_on(stores)
    await apply(directory, an_agent(config_json=CONFIG))
    before = directory.agents["helper"].revision
    changed = an_agent(config_json=CONFIG.replace(CANARY, "renewed"))
    assert await apply(directory, changed, dry_run=True) == ["updated"]
    assert config_of(directory) == json.loads(CONFIG)
    assert await apply(directory, changed) == ["updated"]
    assert directory.agents["helper"].revision == before + 1
    assert config_of(directory) == {"token": "renewed", "title": "世界"}
    assert "renewed" not in await document(stores)


async def test_value_that_is_taken_away_is_deleted(stores: Stores) -> None:
    directory = directory_on(stores)
    owner = SecretOwner("agent", "helper")
    await apply(directory, an_agent(config_json=CONFIG))
    assert await stores.secrets.names(owner) == ["config"]
    await apply(directory, an_agent(config_json='{"title": "x"}'))
    assert await stores.secrets.names(owner) == []
    assert config_of(directory) == {"title": "x"}
    await apply(directory, an_agent(config_json=CONFIG))
    await directory.delete_agent("helper")
    assert await stores.secrets.names(owner) == []


async def test_agent_without_secrets_is_stored_as_the_text_it_came_as(stores: Stores) -> None:
    directory = directory_on(stores)
    agent = an_agent(config_json='{ "title" : "x" }')
    await apply(directory, agent)
    assert json.loads(await document(stores)) == {
        **json.loads(agent.to_document()),
        "withheld": [],
    }
    assert directory.agents["helper"].config_json == '{ "title" : "x" }'


async def test_what_was_stored_before_values_were_sealed_is_sealed_when_it_is_applied_again(
    stores: Stores,
) -> None:
    old = an_agent(config_json=CONFIG)
    record = AgentRecord(id="helper", name="", runner_id=RUNNER, document=old.to_document())
    await stores.catalogue.put_agent(record)
    directory = directory_on(stores)
    await directory.reload()
    assert config_of(directory) == json.loads(CONFIG)
    assert await apply(directory, old) == ["unchanged"]
    assert CANARY not in await document(stores)
    assert config_of(directory) == json.loads(CONFIG)


async def test_what_was_stored_before_values_were_sealed_is_sealed_at_a_start(
    stores: Stores,
) -> None:
    old = an_agent(config_json=CONFIG)
    record = AgentRecord(id="helper", name="", runner_id=RUNNER, document=old.to_document())
    await stores.catalogue.put_agent(record)
    # Which fields are secret is not known before the runner is.
    await directory_on(stores, {}).settle()
    assert json.loads(await document(stores))["config_json"] == "{}"
    directory = directory_on(stores, {})
    revision = await stores.catalogue.revision()
    await directory.settle()
    assert await stores.catalogue.revision() == revision
    assert config_of(directory) == json.loads(CONFIG)


async def test_what_is_no_secret_is_open_again_once_the_runner_is_known(stores: Stores) -> None:
    agent = an_agent(config_json=CONFIG)
    await apply(directory_on(stores, {}), agent)
    known = directory_on(stores)
    await known.settle()
    stored = json.loads(await document(stores))
    assert json.loads(stored["config_json"]) == {"title": "世界"}
    assert stored["withheld"] == ["token"]
    assert config_of(known) == json.loads(CONFIG)
    revision = await stores.catalogue.revision()
    await known.settle()
    # At the next start the runner is not known yet: that changes nothing of what is sealed.
    started = directory_on(stores, {})
    await started.settle()
    assert await apply(started, agent) == ["unchanged"]
    assert await stores.catalogue.revision() == revision
    assert config_of(started) == json.loads(CONFIG)


async def test_values_that_cannot_be_read_are_told_in_the_log_alone(
    stores: Stores, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await apply(directory_on(stores), an_agent(config_json=CONFIG))
    await stores.journal.flush()
    other_key = parse_secret_keys(new_secret_key(), source="test")
    opened = await open_stores(f"sqlite:///{tmp_path / 'stores.db'}", secret_keys=other_key)
    try:
        directory = directory_on(opened)
        await directory.reload()
        assert config_of(directory) == {"title": "世界"}
        assert "'helper' cannot be read" in caplog.text
        assert CANARY not in caplog.text
    finally:
        await opened.close()
