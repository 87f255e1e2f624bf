"""The models that a host has of itself, and where models are served."""

import json
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from host_service.catalogue.model import Model, Origin
from host_service.environment_model import EnvironmentModel
from host_service.errors import HostError, InvalidArgument, Unavailable
from host_service.host_models import HostModels, choose_name
from host_service.limits import Limits
from host_service.models.endpoints import Address
from host_service.rehearsal.server import RehearsalServer
from stores.secrets import Secret
from tests.model_endpoint import ModelEndpoint, model_endpoint

CHAT = Model(id="mine", kind="chat", provider="openai", model_name="theirs")
VECTORS = Model(id="vectors", kind="embedding", provider="openai", model_name="v")


class _Catalogue:
    """Says of every model that it is served at one address."""

    async def address_of(self, model: Model) -> Address:
        """Return that address."""
        return Address(f"https://{model.id}.example", Secret("stored"))


@pytest.fixture
async def rehearsal() -> AsyncIterator[RehearsalServer]:
    """A server of the rehearsal model."""
    server = RehearsalServer()
    yield server
    await server.close()


def _models(rehearsal: RehearsalServer, environment: Mapping[str, str]) -> HostModels:
    return HostModels(
        environment=EnvironmentModel.read(environment),
        rehearsal=rehearsal,
        catalogue=_Catalogue(),
        limits=Limits(),
    )


def _offered(models: HostModels, *stored: Model) -> list[tuple[str, Origin]]:
    return [(each.id, each.origin) for each in models.offered({each.id: each for each in stored})]


KEY = {"OPENAI_API_KEY": "sk-of-the-environment"}


def test_without_any_chat_model_the_rehearsal_model_is_offered(rehearsal: RehearsalServer) -> None:
    models = _models(rehearsal, {})
    assert _offered(models) == [("rehearsal", Origin.HOST)]
    assert _offered(models, VECTORS) == [("rehearsal", Origin.HOST)]
    assert _offered(models, CHAT) == []
    disabled = Model(id="off", kind="chat", provider="p", model_name="m", enabled=False)
    assert _offered(models, disabled) == [("rehearsal", Origin.HOST)]


def test_the_environments_model_is_offered_in_its_place(rehearsal: RehearsalServer) -> None:
    models = _models(rehearsal, KEY)
    assert _offered(models) == [("openai", Origin.ENVIRONMENT)]
    assert _offered(models, CHAT) == [("openai", Origin.ENVIRONMENT)]


def test_a_declared_model_of_the_same_id_is_in_the_place_of_an_own_one(
    rehearsal: RehearsalServer,
) -> None:
    declared = Model(id="openai", kind="chat", provider="openai", model_name="m", enabled=False)
    assert _offered(_models(rehearsal, KEY), declared) == []


async def test_a_model_of_the_catalogue_is_where_the_catalogue_says(
    rehearsal: RehearsalServer,
) -> None:
    # What it is called must not send it to the environment's address with the environment's key.
    declared = Model(id="openai", kind="chat", provider="openai", model_name="m")
    address = await _models(rehearsal, KEY).address_of(declared)
    assert address.base_url == "https://openai.example"
    assert address.api_key is not None
    assert address.api_key.reveal() == "stored"


async def test_the_environments_model_is_called_with_its_key(rehearsal: RehearsalServer) -> None:
    models = _models(rehearsal, {**KEY, "OPENAI_MODEL": "named"})
    (own,) = models.offered({})
    address = await models.address_of(own)
    assert (address.base_url, address.model_name) == ("https://api.openai.com/v1", "named")
    assert address.api_key is not None
    assert address.api_key.reveal() == KEY["OPENAI_API_KEY"]
    assert models.has_key(own)
    assert not models.has_key(CHAT)


@pytest.fixture(scope="module")
def endpoint() -> object:
    """A model that is served elsewhere."""
    with model_endpoint() as endpoint:
        yield endpoint


async def test_a_name_that_nobody_gave_is_asked_for_once(
    rehearsal: RehearsalServer, endpoint: ModelEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    environment = {"OPENAI_API_KEY": endpoint.key, "OPENAI_BASE_URL": f"{endpoint.base_url}/"}
    models, told = _models(rehearsal, environment), []

    async def tell() -> None:
        told.append(next(iter(models.offered({}))).model_name)

    with caplog.at_level(logging.INFO, "runmesh.models"):
        await models.learn_name(tell)
        await models.learn_name(tell)
    (own,) = models.offered({})
    assert told == ["rehearsal"]
    assert (await models.address_of(own)).model_name == "rehearsal"
    (record,) = caplog.records
    assert "'rehearsal' is taken" in record.getMessage()


@pytest.mark.parametrize("place", ["http://127.0.0.1:9/v1", "the endpoint, with a wrong key"])
async def test_where_no_name_can_be_had_it_is_said_what_to_set(
    rehearsal: RehearsalServer,
    endpoint: ModelEndpoint,
    place: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = place if place.startswith("http") else endpoint.base_url
    models = _models(rehearsal, {"OPENAI_API_KEY": "sk-some-secret", "OPENAI_BASE_URL": url})
    (own,) = models.offered({})
    with pytest.raises(Unavailable) as raised:
        await models.address_of(own)
    assert "OPENAI_MODEL" in raised.value.message
    assert url in raised.value.message
    assert "sk-some-secret" not in raised.value.message

    async def tell() -> None:
        raise AssertionError("there is nothing to tell")

    await models.learn_name(tell)
    assert "sk-some-secret" not in caplog.text


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["whisper-1", "gpt-4o-mini", "gpt-5-mini"], "gpt-5-mini"),
        (["text-embedding-3-small", "llama3.2:3b", "qwen3"], "llama3.2:3b"),
        (["bge-m3", "BAAI/bge-reranker-v2"], ""),
        ([], ""),
    ],
)
def test_of_many_one_that_chats_is_taken(names: list[str], chosen: str) -> None:
    assert choose_name(names) == chosen


async def test_the_rehearsal_model_is_served_by_the_host(
    rehearsal: RehearsalServer, tmp_path: Path
) -> None:
    models = _models(rehearsal, {})
    (own,) = models.offered({})
    address = await models.address_of(own)
    assert address.base_url.startswith("http://127.0.0.1:")
    assert address.api_key is not None
    assert address.api_key.reveal() == rehearsal.key
    assert not models.has_key(own)

    script = tmp_path / "script.yaml"
    script.write_text("rules: [{answer: hi}]")
    scripted = Model(
        id="s", kind="chat", provider="rehearsal", model_name="s",
        options_json=json.dumps({"script": str(script)}),
    )  # fmt: skip
    assert (await models.address_of(scripted)).base_url != address.base_url


@pytest.mark.parametrize("options", ['{"script": 4}', '{"script": "/nowhere.yaml"}'])
async def test_a_script_that_will_not_do_is_the_models_fault(
    rehearsal: RehearsalServer, options: str
) -> None:
    model = Model(id="s", kind="chat", provider="rehearsal", model_name="s", options_json=options)
    with pytest.raises(InvalidArgument) as raised:
        await _models(rehearsal, {}).address_of(model)
    assert isinstance(raised.value, HostError)
    assert raised.value.faults[0].field == "options_json.script"


@pytest.mark.parametrize(
    ("environment", "read"),
    [
        ({}, None),
        ({"OPENAI_MODEL": "m"}, None),
        ({"OPENAI_API_KEY": " "}, None),
        ({"OPENAI_API_KEY": "k"}, ("https://api.openai.com/v1", "k", "", False)),
        ({"OPENAI_BASE_URL": "http://[::1]:8000/v1/"}, ("http://[::1]:8000/v1", "", "", True)),
    ],
)
def test_variables_name_a_model(
    environment: Mapping[str, str], read: tuple[str, str, str, bool] | None
) -> None:
    model = EnvironmentModel.read(environment)
    assert read == (
        None
        if model is None
        else (model.base_url, model.api_key, model.model_name, model.is_elsewhere)
    )


def test_variables_that_name_no_address_are_refused_and_keys_not_shown() -> None:
    for place in ("ftp://x", "x", "http://", "http://[::1"):
        with pytest.raises(ValueError, match="OPENAI_BASE_URL must be an address"):
            EnvironmentModel.read({"OPENAI_BASE_URL": place, "OPENAI_API_KEY": "sk-secret"})
    assert "sk-secret" not in repr(EnvironmentModel.read({"OPENAI_API_KEY": "sk-secret"}))
