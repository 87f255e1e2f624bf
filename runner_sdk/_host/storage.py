"""Larger private values that the host keeps, by area and key."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import manifest_pb2

from runner_sdk._host.calls import HostCalls
from runner_sdk._host.pages import PAGE_SIZE, each
from runner_sdk._host.requests import make
from runner_sdk.errors import NotFound

StorageArea: TypeAlias = Literal["plugin", "workspace", "binding"]


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes that the host keeps, by area and key: `ctx.host.storage`.

    The area `plugin` is private to the plugin, `workspace` and `binding` are shared by all runs
    that were granted them. Needs the permission `storage` with the area in it.
    """

    calls: HostCalls

    async def get(self, area: StorageArea, key: str) -> bytes:
        """Reads a value.

        Raises:
            NotFound: The key has no value.
            Unauthorized: The area is not this run's to use.
        """
        request = make(api.GetStorageRequest, area=storage_area(area), key=key)
        response: api.GetStorageResponse = await self.calls.call("GetStorage", request)
        return response.value

    async def find(self, area: StorageArea, key: str) -> bytes | None:
        """Reads a value, or returns None where the key has none."""
        try:
            return await self.get(area, key)
        except NotFound:
            return None

    async def set(self, area: StorageArea, key: str, value: bytes) -> None:
        """Stores a value. It may be empty.

        Raises:
            PayloadTooLarge: It has more than 3 MiB: create an artifact.
        """
        request = make(api.SetStorageRequest, area=storage_area(area), key=key, value=value)
        await self.calls.call("SetStorage", request)

    async def delete(self, area: StorageArea, key: str) -> bool:
        """Removes a value and returns whether there was one."""
        request = make(api.DeleteStorageRequest, area=storage_area(area), key=key)
        response: api.DeleteStorageResponse = await self.calls.call("DeleteStorage", request)
        return response.existed

    async def list(self, area: StorageArea, prefix: str = "") -> list[api.StorageEntry]:
        """Returns keys with size and time, all of them, in order; see `iterate` for many."""
        return [entry async for entry in self.iterate(area, prefix)]

    def iterate(
        self, area: StorageArea, prefix: str = "", *, page_size: int = PAGE_SIZE
    ) -> AsyncIterator[api.StorageEntry]:
        """Yields keys with size and time, in order, fetching the next page when one is used up.

        Args:
            area: Where they belong.
            prefix: Only keys that begin so.
            page_size: How many are fetched at once, 1 to 100.
        """
        request = make(
            api.ListStorageRequest, area=storage_area(area), prefix=prefix, page_size=page_size
        )

        async def fetch(page_token: str) -> api.ListStorageResponse:
            request.page_token = page_token
            response: api.ListStorageResponse = await self.calls.call("ListStorage", request)
            return response

        return each(fetch, lambda page: page.entries)


def storage_area(area: StorageArea) -> manifest_pb2.StorageArea.ValueType:
    """Returns an area's number in the contract.

    Raises:
        ValueError: There is no such area.
    """
    try:
        return manifest_pb2.StorageArea.Value(f"STORAGE_AREA_{area.upper()}")
    except ValueError:
        known = ", ".join(StorageArea.__args__)  # type: ignore[attr-defined]
        raise ValueError(f"area: {area!r} is none of {known}") from None
