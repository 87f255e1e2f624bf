"""What a start does about the keys of secrets and of the operator."""

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from host_service.authorization.secrets import hash_secret
from host_service.configuration import read_configuration as read_text
from host_service.data_folder import DataFolder
from host_service.errors import StartupError
from host_service.limits import Limits
from host_service.requests import RequestCheck
from host_service.start_up import (
    apply_configuration,
    ensure_operator_key,
    open_database,
    renew_secrets,
)
from host_service.validation import Validator
from stores import Stores
from stores.errors import ValueTooLarge
from stores.secret_keys import VARIABLE, new_secret_key
from stores.secrets import SecretOwner
from tests.unit.agents.directories import directory_over

OWNER = SecretOwner("model", "gpt")
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def url(migrated_file: Path, tmp_path: Path) -> str:
    path = tmp_path / "stores.db"
    path.write_bytes(migrated_file.read_bytes())
    return f"sqlite:///{path}"


async def opened(url: str, folder: Path, **limits: int) -> Stores:
    return await open_database(
        url,
        secret_key_file=folder / "secret.key",
        blobs_url=(folder / "blobs").as_uri(),
        limits=Limits(**limits),
    )


async def test_stores_take_as_much_as_the_limits_in_force_say(url: str, tmp_path: Path) -> None:
    stores = await opened(url, tmp_path, state_value_bytes=4, storage_value_bytes=7)
    try:
        await stores.state.set("scope", "key", "1234")
        await stores.storage.set("plugin", "acme", "key", b"1234567")
        with pytest.raises(ValueTooLarge, match="at most 4 bytes"):
            _ = stores.state.set("scope", "key", "12345")
        with pytest.raises(ValueTooLarge, match="at most 7 bytes"):
            _ = stores.storage.set("plugin", "acme", "key", b"12345678")
    finally:
        await stores.close()


async def test_new_key_in_front_renews_every_secret_at_the_start(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "runmesh.host")
    file = tmp_path / "secret.key"
    first = await opened(url, tmp_path)
    await first.secrets.put(OWNER, "api_key", "canary")
    await renew_secrets(first.secrets)
    await first.close()
    assert caplog.text == ""
    monkeypatch.setenv(VARIABLE, new_secret_key())
    second = await opened(url, tmp_path)
    await renew_secrets(second.secrets)
    await second.close()
    assert "encrypted 1 secrets with the newest key" in caplog.text
    file.unlink()
    third = await opened(url, tmp_path)
    secret = await third.secrets.get(OWNER, "api_key")
    await third.close()
    assert secret is not None
    assert secret.reveal() == "canary"
    assert "canary" not in caplog.text


async def test_secret_whose_key_is_lost_is_named_at_the_start(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "secret.key"
    first = await opened(url, tmp_path)
    await first.secrets.put(OWNER, "api_key", "canary")
    await first.close()
    file.unlink()
    second = await opened(url, tmp_path)
    await renew_secrets(second.secrets)
    await second.close()
    assert "the secret 'api_key' of model 'gpt' does not decrypt" in caplog.text


async def test_key_that_is_none_stops_the_start(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "hunter2")
    with pytest.raises(StartupError, match="RUNMESH_SECRET_KEY, key 1 of 1 is none") as caught:
        await opened(url, tmp_path)
    assert "hunter2" not in str(caught.value)


async def test_every_new_data_folder_has_an_operator_key_that_works(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    found = []
    for name in ("first", "second", "second"):
        folder = DataFolder.open(tmp_path / name)
        stores = await opened(url, folder.path)
        await ensure_operator_key(stores.keys, folder, at=NOW)
        folder.host_id()
        secret = (folder.path / "operator.key").read_text().strip()
        assert await stores.keys.find_by_hash(hash_secret(secret)) is not None
        found.append((secret, len(await stores.keys.list())))
        await stores.close()
        folder.close()
    assert [count for _, count in found] == [1, 2, 2]
    assert found[1][0] == found[2][0] != found[0][0]


async def test_operator_key_that_was_taken_away_stays_away(tmp_path: Path) -> None:
    for _ in range(2):
        folder = DataFolder.open(tmp_path / "data")
        stores = await opened(folder.database_url, folder.path)
        await ensure_operator_key(stores.keys, folder, at=NOW)
        folder.host_id()
        (folder.path / "operator.key").unlink(missing_ok=True)
        assert len(await stores.keys.list()) == 1
        await stores.close()
        folder.close()


async def test_blob_store_that_is_none_is_told_with_its_option(url: str, tmp_path: Path) -> None:
    with pytest.raises(StartupError) as refused:
        await open_database(
            url,
            secret_key_file=tmp_path / "secret.key",
            blobs_url="ftp://nowhere/x",
            limits=Limits(),
        )
    assert refused.value.advice == "check --blobs"


async def test_every_fault_of_the_configuration_is_told_with_its_line(
    stores: Stores,
) -> None:
    limits = Limits()
    check = RequestCheck(validator=Validator(limits.as_mapping()))
    text = (
        "agents:\n"
        "- {id: one, runner_id: nonsense}\n"
        "bindings:\n"
        "- {id: b, agent_id: nobody, event_types: [message.received]}\n"
        "tool_servers:\n"
        "- {id: a__b, http: {url: 'ftp://nowhere'}}\n"
    )
    configuration = read_text(text.encode(), source="mesh.yaml")
    with pytest.raises(StartupError) as caught:
        await apply_configuration(configuration, directory_over(stores), check)
    lines = str(caught.value).splitlines()
    assert [line.partition("mesh.yaml:")[2].split(": ")[:2] for line in lines] == [
        ["2", "agents[0].runner_id"],
        ["4", "bindings[0].agent_id"],
        ["6", "tool_servers[0].id"],
        ["6", "tool_servers[0].http.url"],
    ]
