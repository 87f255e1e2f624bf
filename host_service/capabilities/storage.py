"""Storage: larger private values of a plugin, a workspace or an agent.

Each area has an owner, which is built of what the run is, never of what it says:

    plugin     the plugin: its runners share it, in all workspaces, and no other plugin sees it
    workspace  the workspace: every runner that was granted the area shares it
    binding    the runner and the agent

The parts of an owner stand behind their lengths, so that no two owners share a key.
"""

from __future__ import annotations

from runmesh.v1 import host_api_pb2

from host_service.authorization.snapshot import Snapshot
from host_service.authorization.tokens import RunAccess
from host_service.capabilities.key_cursors import cursor_of_key, key_of_cursor
from host_service.capabilities.needs import storage_area
from host_service.capabilities.store_errors import told_to_runners
from host_service.errors import NotFound
from host_service.identity import join_key
from host_service.pages import PageTokens
from stores.storage import Storage as StorageStore


class Storage:
    """Reads and writes values of storage.

    Args:
        store: Where they are.
        pages: Makes page tokens.
    """

    def __init__(self, *, store: StorageStore, pages: PageTokens) -> None:
        self._store = store
        self._pages = pages

    async def get(
        self, access: RunAccess, request: host_api_pb2.GetStorageRequest
    ) -> host_api_pb2.GetStorageResponse:
        """Read one value.

        Raises:
            NotFound: There is none.
        """
        area, owner = _place(access, request.area)
        stored = await self._store.get(area, owner, request.key)
        if stored is None:
            raise NotFound("value of storage", request.key)
        response = host_api_pb2.GetStorageResponse(value=stored.value)
        response.updated_at.FromDatetime(stored.updated_at)
        return response

    async def set(
        self, access: RunAccess, request: host_api_pb2.SetStorageRequest
    ) -> host_api_pb2.SetStorageResponse:
        """Store one value, and answer when it is durable.

        Raises:
            PayloadTooLarge: It is larger than a value may be.
        """
        area, owner = _place(access, request.area)
        with told_to_runners():
            await self._store.set(area, owner, request.key, request.value)
        return host_api_pb2.SetStorageResponse()

    async def delete(
        self, access: RunAccess, request: host_api_pb2.DeleteStorageRequest
    ) -> host_api_pb2.DeleteStorageResponse:
        """Remove one value."""
        area, owner = _place(access, request.area)
        with told_to_runners():
            existed = await self._store.delete(area, owner, request.key)
        return host_api_pb2.DeleteStorageResponse(existed=existed)

    async def list(
        self, access: RunAccess, request: host_api_pb2.ListStorageRequest
    ) -> host_api_pb2.ListStorageResponse:
        """List keys, without the values."""
        area, owner = _place(access, request.area)
        within = join_key(area, owner)
        page = await self._store.list(
            area,
            owner,
            prefix=request.prefix,
            after=key_of_cursor(self._pages.read(request, within=within)),
            limit=self._pages.size(request.page_size),
        )
        response = host_api_pb2.ListStorageResponse(
            next_page_token=self._pages.issue(
                request, cursor_of_key(page.next_cursor), within=within
            )
        )
        for entry in page.items:
            message = response.entries.add(key=entry.key, size_bytes=entry.size_bytes)
            message.updated_at.FromDatetime(entry.updated_at)
        return response


def _place(access: RunAccess, number: int) -> tuple[str, str]:
    """Return area and owner of what a request names."""
    area = storage_area(number)
    # The gate has let no other pass.
    assert area is not None  # noqa: S101
    return area, _OWNERS[area](access.snapshot)


def _of_plugin(snapshot: Snapshot) -> str:
    return join_key(snapshot.plugin_id)


def _of_workspace(snapshot: Snapshot) -> str:
    return join_key(snapshot.identity.workspace)


def _of_binding(snapshot: Snapshot) -> str:
    return join_key(snapshot.runner_id, snapshot.agent_id)


_OWNERS = {"plugin": _of_plugin, "workspace": _of_workspace, "binding": _of_binding}
