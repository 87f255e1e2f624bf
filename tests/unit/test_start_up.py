"""What a start does about the keys of secrets."""

import logging
from pathlib import Path

import pytest

from host_service.errors import StartupError
from host_service.start_up import open_database, renew_secrets
from stores.secret_keys import VARIABLE, new_secret_key
from stores.secrets import SecretOwner

OWNER = SecretOwner("model", "gpt")


@pytest.fixture
def url(migrated_file: Path, tmp_path: Path) -> str:
    path = tmp_path / "stores.db"
    path.write_bytes(migrated_file.read_bytes())
    return f"sqlite:///{path}"


async def test_new_key_in_front_renews_every_secret_at_the_start(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "runmesh.host")
    file = tmp_path / "secret.key"
    first = await open_database(url, secret_key_file=file, blobs_folder=tmp_path / "blobs")
    await first.secrets.put(OWNER, "api_key", "canary")
    await renew_secrets(first.secrets)
    await first.close()
    assert caplog.text == ""
    monkeypatch.setenv(VARIABLE, new_secret_key())
    second = await open_database(url, secret_key_file=file, blobs_folder=tmp_path / "blobs")
    await renew_secrets(second.secrets)
    await second.close()
    assert "encrypted 1 secrets with the newest key" in caplog.text
    file.unlink()
    third = await open_database(url, secret_key_file=file, blobs_folder=tmp_path / "blobs")
    secret = await third.secrets.get(OWNER, "api_key")
    await third.close()
    assert secret is not None
    assert secret.reveal() == "canary"
    assert "canary" not in caplog.text


async def test_secret_whose_key_is_lost_is_named_at_the_start(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "secret.key"
    first = await open_database(url, secret_key_file=file, blobs_folder=tmp_path / "blobs")
    await first.secrets.put(OWNER, "api_key", "canary")
    await first.close()
    file.unlink()
    second = await open_database(url, secret_key_file=file, blobs_folder=tmp_path / "blobs")
    await renew_secrets(second.secrets)
    await second.close()
    assert "the secret 'api_key' of model 'gpt' does not decrypt" in caplog.text


async def test_key_that_is_none_stops_the_start(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "hunter2")
    with pytest.raises(StartupError, match="RUNMESH_SECRET_KEY, key 1 of 1 is none") as caught:
        await open_database(
            url, secret_key_file=tmp_path / "secret.key", blobs_folder=tmp_path / "blobs"
        )
    assert "hunter2" not in str(caught.value)
