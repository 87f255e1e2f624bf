"""Where a model is served, and the key it is called with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from host_service.catalogue.model import Model
from stores.secrets import Secret, SecretOwner, Secrets

#: Where a model without a base URL is served.
OPENAI_BASE_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a model is called.

    Attributes:
        base_url: The URL that paths such as `/chat/completions` follow.
        api_key: Sent as a bearer token; None: nothing is sent.
        model_name: What the model is called there; empty: as the catalogue says.
    """

    base_url: str
    api_key: Secret | None = None
    model_name: str = ""


class Endpoints(Protocol):
    """Finds where models are served."""

    async def address_of(self, model: Model) -> Address:
        """Return where a model is called now. Asked before every call, so it must be quick.

        Raises:
            HostError: It cannot be called now.
            SecretUnreadable: Its key is stored and cannot be decrypted.
        """


class CatalogueEndpoints:
    """Takes what the catalogue and its secrets say.

    Args:
        secrets: Where keys are.
    """

    def __init__(self, *, secrets: Secrets) -> None:
        self._secrets = secrets

    async def address_of(self, model: Model) -> Address:
        """Return the model's base URL, and the key stored for it."""
        owner = SecretOwner(Model.KIND, model.id)
        key = await self._secrets.get(owner, Model.API_KEY)
        return Address(model.base_url or OPENAI_BASE_URL, key)
