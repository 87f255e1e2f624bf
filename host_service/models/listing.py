"""What models a provider has, by its own list."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

from host_service.limits import Limits
from host_service.models.client import ProviderClient
from host_service.models.endpoints import Address
from host_service.models.failures import Kind, ProviderFailure, failed, told


async def list_models(address: Address, model_id: str, *, limits: Limits) -> list[str]:
    """Return the names of a provider's models, in its order; each page of one list alone.

    Args:
        address: Where the provider is.
        model_id: The catalogue's id of the model that it is asked for.
        limits: How long it may take, and how much is read.

    Raises:
        HostError: It did not answer, or with no list.
    """
    secrets = () if address.api_key is None else (address.api_key.reveal(),)
    try:
        client = await asyncio.to_thread(ProviderClient, address, limits=limits)
        try:
            return _names(await _read(client, limits.model_response_bytes))
        finally:
            await client.close()
    except ProviderFailure as failure:
        raise told(failure, model_id, secrets=secrets) from None


async def _read(client: ProviderClient, most: int) -> bytes:
    data = bytearray()
    async with client.get("/models") as response:
        async for chunk in client.chunks(response):
            data += chunk
            if len(data) > most:
                raise failed(Kind.BAD_ANSWER, f"a list of models of more than {most} bytes")
    return bytes(data)


def _names(data: bytes) -> list[str]:
    with suppress(ValueError, RecursionError):
        content = json.loads(data)
        entries = content.get("data") if isinstance(content, dict) else content
        if isinstance(entries, list):
            ids = (each.get("id") for each in entries if isinstance(each, dict))
            return [each for each in ids if isinstance(each, str) and each]
    raise failed(Kind.BAD_ANSWER, "no list of models")
