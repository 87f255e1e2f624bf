"""State of the scopes that a run was granted.

Which values a scope has is told by the key that was frozen for it at the run's start: a runner
names a scope, never an owner.
"""

from __future__ import annotations

from runmesh.v1 import host_api_pb2

from host_service.agents.agent import Scope
from host_service.authorization.tokens import RunAccess
from host_service.capabilities.key_cursors import cursor_of_key, key_of_cursor
from host_service.capabilities.needs import state_scope
from host_service.capabilities.store_errors import told_to_runners
from host_service.errors import NotFound
from host_service.limits import Limits
from host_service.pages import PageTokens
from host_service.runs.state import retention_workspace
from stores.state import State as StateStore
from stores.state import StateEntry


class State:
    """Reads and writes values of state.

    Args:
        store: Where they are.
        pages: Makes page tokens.
        limits: How much a page may hold.
    """

    def __init__(self, *, store: StateStore, pages: PageTokens, limits: Limits) -> None:
        self._store = store
        self._pages = pages
        self._limits = limits

    async def get(
        self, access: RunAccess, request: host_api_pb2.GetStateRequest
    ) -> host_api_pb2.GetStateResponse:
        """Read one value.

        Raises:
            NotFound: There is none.
        """
        entry = await self._store.get(_scope_key(access, request.scope), request.key)
        if entry is None:
            raise NotFound("state", request.key)
        return host_api_pb2.GetStateResponse(entry=_message(entry))

    async def set(
        self, access: RunAccess, request: host_api_pb2.SetStateRequest
    ) -> host_api_pb2.SetStateResponse:
        """Write one value, and answer when it is durable.

        Raises:
            Conflict: It has another version than the expected one.
            PayloadTooLarge: It is larger than a value may be.
        """
        with told_to_runners():
            entry = await self._store.set(
                _scope_key(access, request.scope),
                request.key,
                request.value_json,
                expected_version=_expected_version(request),
                workspace=retention_workspace(
                    _scope(request.scope), access.snapshot.identity.workspace
                ),
            )
        return host_api_pb2.SetStateResponse(version=entry.version)

    async def delete(
        self, access: RunAccess, request: host_api_pb2.DeleteStateRequest
    ) -> host_api_pb2.DeleteStateResponse:
        """Remove one value.

        Raises:
            Conflict: It has another version than the expected one.
        """
        with told_to_runners():
            existed = await self._store.delete(
                _scope_key(access, request.scope),
                request.key,
                expected_version=_expected_version(request),
            )
        return host_api_pb2.DeleteStateResponse(existed=existed)

    async def list(
        self, access: RunAccess, request: host_api_pb2.ListStateRequest
    ) -> host_api_pb2.ListStateResponse:
        """List values by key; a page ends where it has enough bytes."""
        scope_key = _scope_key(access, request.scope)
        page = await self._store.list(
            scope_key,
            prefix=request.prefix,
            after=key_of_cursor(self._pages.read(request, within=scope_key)),
            limit=self._pages.size(request.page_size),
            most_bytes=self._limits.page_bytes,
        )
        return host_api_pb2.ListStateResponse(
            entries=[_message(entry) for entry in page.items],
            next_page_token=self._pages.issue(
                request, cursor_of_key(page.next_cursor), within=scope_key
            ),
        )


def _scope(number: int) -> Scope:
    scope = state_scope(number)
    # The gate has let no other pass.
    assert scope is not None  # noqa: S101
    return scope


def _scope_key(access: RunAccess, number: int) -> str:
    return access.snapshot.state_keys[_scope(number)]


def _expected_version(
    request: host_api_pb2.SetStateRequest | host_api_pb2.DeleteStateRequest,
) -> int | None:
    return request.expected_version if request.HasField("expected_version") else None


def _message(entry: StateEntry) -> host_api_pb2.StateEntry:
    message = host_api_pb2.StateEntry(key=entry.key, value_json=entry.value, version=entry.version)
    message.updated_at.FromDatetime(entry.updated_at)
    return message
