"""Small JSON values that the host keeps, by scope and key."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from runmesh.v1 import host_api_pb2 as api

from runner_sdk._host.calls import HostCalls
from runner_sdk._host.pages import PAGE_SIZE, each
from runner_sdk._host.requests import make
from runner_sdk._json import from_json, to_json
from runner_sdk.errors import Conflict, NotFound
from runner_sdk.results import StateScope, state_scope

# Others who write the same key at once win now and then; against so many in a row something is
# wrong.
_UPDATE_TRIES = 20


@dataclass(frozen=True, slots=True)
class StateValue:
    """A value of state, and its version: what to name in a write that must not overwrite."""

    key: str
    value: Any
    version: int


@dataclass(frozen=True, slots=True)
class State:
    """Small JSON values that the host keeps, by scope and key: `ctx.host.state`.

    `state["conversation"]` is one scope, for code that reads and writes in it alone. Which scopes
    there are is the agent's policy; one that the event has no identity for is absent.
    """

    calls: HostCalls

    def __getitem__(self, scope: StateScope) -> "ScopedState":
        """Returns one scope.

        Raises:
            ValueError: There is no such scope.
        """
        state_scope(scope)
        return ScopedState(self, scope)

    async def get(self, scope: StateScope, key: str) -> StateValue:
        """Reads a value with its version.

        Raises:
            NotFound: The key has no value.
            Unauthorized: The scope is not this run's to use.
        """
        request = make(api.GetStateRequest, scope=state_scope(scope), key=key)
        response: api.GetStateResponse = await self.calls.call("GetState", request)
        return _state_value(response.entry)

    async def set(
        self, scope: StateScope, key: str, value: object, *, expected_version: int | None = None
    ) -> int:
        """Writes a value and returns its new version.

        Args:
            scope: Where it belongs.
            key: The key, 1 to 255 bytes.
            value: A JSON value of at most 256 KiB.
            expected_version: Write only over this version; 0: only where there is no value.

        Raises:
            Conflict: The value has another version.
            PayloadTooLarge: The value is too large.
        """
        request = make(
            api.SetStateRequest,
            scope=state_scope(scope),
            key=key,
            value_json=to_json(value, field=f"state {scope} {key!r}"),
            expected_version=expected_version,
        )
        response: api.SetStateResponse = await self.calls.call("SetState", request)
        return response.version

    async def delete(
        self, scope: StateScope, key: str, *, expected_version: int | None = None
    ) -> bool:
        """Removes a value and returns whether there was one.

        Raises:
            Conflict: The value has another version than expected.
        """
        request = make(
            api.DeleteStateRequest,
            scope=state_scope(scope),
            key=key,
            expected_version=expected_version,
        )
        response: api.DeleteStateResponse = await self.calls.call("DeleteState", request)
        return response.existed

    async def list(self, scope: StateScope, prefix: str = "") -> list[StateValue]:
        """Returns the values of a scope by key, all of them; see `iterate` for many."""
        return [value async for value in self.iterate(scope, prefix)]

    def iterate(
        self, scope: StateScope, prefix: str = "", *, page_size: int = PAGE_SIZE
    ) -> AsyncIterator[StateValue]:
        """Yields the values of a scope by key, fetching the next page when one is used up.

        Args:
            scope: Where they belong.
            prefix: Only keys that begin so.
            page_size: How many are fetched at once, 1 to 100.
        """
        request = make(
            api.ListStateRequest, scope=state_scope(scope), prefix=prefix, page_size=page_size
        )

        async def fetch(page_token: str) -> api.ListStateResponse:
            request.page_token = page_token
            response: api.ListStateResponse = await self.calls.call("ListState", request)
            return response

        return each(fetch, lambda page: map(_state_value, page.entries))


@dataclass(frozen=True, slots=True)
class ScopedState:
    """One scope of state: `ctx.host.state["conversation"]`."""

    state: State
    scope: StateScope

    async def get(self, key: str, default: Any = None) -> Any:
        """Returns a key's value, or the default where it has none."""
        try:
            return (await self.state.get(self.scope, key)).value
        except NotFound:
            return default

    async def set(self, key: str, value: object) -> int:
        """Writes a value and returns its new version."""
        return await self.state.set(self.scope, key, value)

    async def delete(self, key: str) -> bool:
        """Removes a value and returns whether there was one."""
        return await self.state.delete(self.scope, key)

    async def update(self, key: str, change: Callable[[Any], object], default: Any = None) -> Any:
        """Changes a value so that no write of anybody else is lost, and returns the new one.

        Args:
            key: The key.
            change: Makes the new value of the old one; called again when somebody else was faster.
            default: What stands for the old value where there is none.

        Raises:
            Conflict: Others were faster twenty times in a row.
        """
        tries_left = _UPDATE_TRIES
        while True:
            value, version = await self._read(key, default)
            changed = change(value)
            try:
                await self.state.set(self.scope, key, changed, expected_version=version)
            except Conflict:
                tries_left -= 1
                if not tries_left:
                    raise
            else:
                return changed

    async def items(self, prefix: str = "") -> dict[str, Any]:
        """Returns keys and values, all of them."""
        return {entry.key: entry.value async for entry in self.iterate(prefix)}

    def iterate(self, prefix: str = "") -> AsyncIterator[StateValue]:
        """Yields the values by key, page after page."""
        return self.state.iterate(self.scope, prefix)

    async def _read(self, key: str, default: Any) -> tuple[Any, int]:
        try:
            found = await self.state.get(self.scope, key)
        except NotFound:
            return default, 0
        return found.value, found.version


def _state_value(entry: api.StateEntry) -> StateValue:
    return StateValue(entry.key, from_json(entry.value_json), entry.version)
