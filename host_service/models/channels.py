"""One client and one line for each model, kept as long as what they go by is the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from host_service.catalogue.model import Model
from host_service.limits import Limits
from host_service.models.client import ProviderClient
from host_service.models.endpoints import Address, Endpoints
from host_service.models.turns import Turns


@dataclass(slots=True)
class _Connected:
    """A client, and who uses it; one that was replaced is closed by the last who does."""

    address: Address
    client: ProviderClient
    users: int = 0
    is_replaced: bool = False


@dataclass(frozen=True, slots=True)
class Channel:
    """What a call works with.

    Attributes:
        client: Sends requests.
        turns: Says when.
        model_name: What the provider calls the model.
        secrets: What must not be in any error.
    """

    client: ProviderClient
    turns: Turns
    model_name: str
    secrets: tuple[str, ...]


class Channels:
    """Gives the channel of a model.

    Args:
        endpoints: Finds where models are served.
        limits: How much is too much.
    """

    def __init__(self, *, endpoints: Endpoints, limits: Limits) -> None:
        self._endpoints = endpoints
        self._limits = limits
        self._connected: dict[str, _Connected] = {}
        self._turns: dict[str, Turns] = {}
        # Two calls that come together make one client.
        self._making = asyncio.Lock()

    @asynccontextmanager
    async def opened(self, model: Model) -> AsyncIterator[Channel]:
        """Give the channel of a model, as its provider is reached now.

        Raises:
            ProviderFailure: The model's key cannot be sent.
            HostError, StoreError: As `Endpoints.address_of`.
        """
        address = await self._endpoints.address_of(model)
        connected = await self._connect(model.id, address)
        connected.users += 1
        try:
            yield Channel(
                client=connected.client,
                turns=self._turns_of(model),
                model_name=address.model_name or model.model_name,
                secrets=() if address.api_key is None else (address.api_key.reveal(),),
            )
        finally:
            connected.users -= 1
            if connected.is_replaced and not connected.users:
                await connected.client.close()

    async def drop(self, is_gone: Callable[[str], bool]) -> None:
        """Forget models, by their ids; what is under way with them goes on.

        Args:
            is_gone: Tells whether a model is to be forgotten.
        """
        for model_id in [each for each in self._connected if is_gone(each)]:
            self._turns.pop(model_id, None)
            await self._replace(self._connected.pop(model_id))

    async def close(self) -> None:
        """Close every client; what is under way with one fails."""
        connected, self._connected = self._connected, {}
        for each in connected.values():
            await each.client.close()

    async def _connect(self, model_id: str, address: Address) -> _Connected:
        async with self._making:
            found = self._connected.get(model_id)
            if found is not None and _is_same(found.address, address):
                return found
            client = await asyncio.to_thread(ProviderClient, address, limits=self._limits)
            made = self._connected[model_id] = _Connected(address, client)
            if found is not None:
                await self._replace(found)
            return made

    async def _replace(self, connected: _Connected) -> None:
        connected.is_replaced = True
        if not connected.users:
            await connected.client.close()

    def _turns_of(self, model: Model) -> Turns:
        turns = self._turns.get(model.id)
        if turns is None:
            turns = self._turns[model.id] = Turns(
                model_id=model.id, most_waiting=self._limits.model_waiting_calls
            )
        turns.allow(at_once=model.max_concurrency, a_minute=model.requests_per_minute)
        return turns


def _is_same(one: Address, other: Address) -> bool:
    return one.base_url == other.base_url and one.api_key == other.api_key
