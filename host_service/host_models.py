"""The models that the host offers of itself, and where every model is served.

The host's own models are not stored. `environment` is there while variables name it; `rehearsal` is
there while no other chat model is, so that a host without any key answers all the same::

    the catalogue's models --> offered(): with the host's own --> the shelf --> runs
    a call --> address_of(): the catalogue's secrets | the environment | the rehearsal server
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from host_service.catalogue.model import CHAT, Model, Origin
from host_service.configuration.document import ConfigurationError
from host_service.environment_model import MODEL_NAME, EnvironmentModel
from host_service.errors import FieldFault, HostError, InvalidArgument, Unavailable
from host_service.limits import Limits
from host_service.models.endpoints import Address, Endpoints
from host_service.models.listing import list_models
from host_service.rehearsal.server import RehearsalServer
from stores.errors import StoreError
from stores.secrets import Secret

_log = logging.getLogger("runmesh.models")

#: The provider of models that the rehearsal server answers for.
REHEARSAL = "rehearsal"
#: The model of the environment.
ENVIRONMENT_MODEL_ID = "openai"

REHEARSAL_MODEL = Model(
    id=REHEARSAL,
    kind=CHAT,
    provider=REHEARSAL,
    model_name=REHEARSAL,
    name="Rehearsal (no language model)",
    context_window_tokens=32_768,
    abilities=("tool_calling",),
    origin=Origin.HOST,
)

_LIST_SECONDS = 15.0
# Of a list of many, what answers quickly and for little; else the first that seems to chat.
_PREFERRED = ("gpt-5-mini", "gpt-5.1-mini", "gpt-4.1-mini", "gpt-4o-mini")
_NO_CHAT = (
    "embed", "rerank", "whisper", "tts", "dall-e", "image", "audio", "moderation", "realtime",
    "transcribe", "sora", "davinci", "babbage", "bge-", "minilm", "clip",
)  # fmt: skip


def is_for_people(models: Iterable[Model]) -> bool:
    """Return whether one of some models answers people, and is no rehearsal."""
    return any(each.kind == CHAT and each.enabled and each.provider != REHEARSAL for each in models)


class HostModels:
    """Offers the host's own models, and finds where models are served.

    Args:
        environment: The model that the environment names; None: it names none.
        rehearsal: Serves the rehearsal model.
        catalogue: Finds where the catalogue's models are served.
        limits: How long a provider may take.
    """

    def __init__(
        self,
        *,
        environment: EnvironmentModel | None,
        rehearsal: RehearsalServer,
        catalogue: Endpoints,
        limits: Limits,
    ) -> None:
        self._environment = environment
        self._rehearsal = rehearsal
        self._catalogue = catalogue
        self._limits = limits
        self._name = environment.model_name if environment is not None else ""
        self._naming = asyncio.Lock()

    def offered(self, stored: Mapping[str, Model]) -> Iterator[Model]:
        """Yield the host's own models beside those of the catalogue, best first.

        Args:
            stored: The catalogue's models; one of the same id is in the place of the host's.
        """
        own = None if self._environment is None else self._of_environment(self._environment)
        if own is not None and own.id not in stored:
            yield own
        has_chat = any(each.kind == CHAT and each.enabled for each in stored.values())
        if own is None and not has_chat and REHEARSAL not in stored:
            yield REHEARSAL_MODEL

    async def address_of(self, model: Model) -> Address:
        """Return where a model is called, and as what.

        Raises:
            HostError: It cannot be called now.
            SecretUnreadable: Its key is stored and cannot be decrypted.
        """
        if model.origin == Origin.ENVIRONMENT and self._environment is not None:
            return _address(self._environment, await self.name())
        if model.provider == REHEARSAL:
            return await self._rehearsed(model)
        return await self._catalogue.address_of(model)

    async def name(self) -> str:
        """Return what the environment's model is called where it is served; ask there if need be.

        Raises:
            Unavailable: Nobody said, and nothing came of asking.
        """
        if self._name or self._environment is None:
            return self._name
        async with self._naming:
            if not self._name:
                self._name = await self._asked(self._environment)
        return self._name

    async def learn_name(self, told: Callable[[], Awaitable[None]]) -> None:
        """Find out what the environment's model is called, where nobody said, and have it shown.

        Args:
            told: Called when it is known.
        """
        if self._environment is None or self._name:
            return
        try:
            await self.name()
            await told()
        except (HostError, StoreError) as error:
            # Its first call asks again, and says so to whoever made it.
            _log.warning("the model of the environment: %s", error)

    def has_key(self, model: Model) -> bool:
        """Return whether the environment has a key for a model."""
        environment = self._environment
        return (
            model.origin == Origin.ENVIRONMENT
            and environment is not None
            and bool(environment.api_key)
        )

    def _of_environment(self, environment: EnvironmentModel) -> Model:
        return Model(
            id=ENVIRONMENT_MODEL_ID,
            kind=CHAT,
            provider="openai",
            model_name=self._name,
            name=f"{self._name or 'a model'} of the environment",
            base_url=environment.base_url if environment.is_elsewhere else "",
            # What a model elsewhere can see is not known: an image that it cannot is an error.
            abilities=("tool_calling",) if environment.is_elsewhere else ("tool_calling", "vision"),
            origin=Origin.ENVIRONMENT,
        )

    async def _asked(self, environment: EnvironmentModel) -> str:
        address = _address(environment)
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                names = await list_models(address, ENVIRONMENT_MODEL_ID, limits=self._limits)
        except (HostError, TimeoutError) as error:
            why = str(error) or f"no answer within {_LIST_SECONDS:g} s"
            raise Unavailable(
                f"{address.base_url} was asked for the names of its models, in vain: {why}: "
                f"set {MODEL_NAME} to the model's name"
            ) from error
        chosen = choose_name(names)
        if not chosen:
            raise Unavailable(
                f"{address.base_url} lists no chat model: set {MODEL_NAME} to the model's name"
            )
        _log.info(
            "%s names no model: %r is taken, of %d at %s",
            MODEL_NAME,
            chosen,
            len(names),
            address.base_url,
        )
        return chosen

    async def _rehearsed(self, model: Model) -> Address:
        try:
            url = await self._rehearsal.base_url(_script_of(model))
        except ConfigurationError as error:
            told = "; ".join(str(each) for each in error.faults)
            raise _of_script(model, told) from error
        return Address(url, Secret(self._rehearsal.key))


def choose_name(ids: Sequence[str]) -> str:
    """Return which of a provider's models is taken when nobody says; empty: none will do."""
    preferred = next((each for each in _PREFERRED if each in ids), None)
    if preferred is not None:
        return preferred
    chatting = (each for each in ids if not any(word in each.lower() for word in _NO_CHAT))
    return next(chatting, "")


def _address(environment: EnvironmentModel, model_name: str = "") -> Address:
    key = Secret(environment.api_key) if environment.api_key else None
    return Address(environment.base_url, key, model_name)


def _script_of(model: Model) -> Path | None:
    script = json.loads(model.options_json).get("script")
    if script is None:
        return None
    if not isinstance(script, str) or not script or "\0" in script:
        raise _of_script(model, "it must be the path of a file")
    return Path(script)


def _of_script(model: Model, told: str) -> HostError:
    fault = FieldFault("options_json.script", f"a script that can be read: {told}", model.id)
    return InvalidArgument([fault])
