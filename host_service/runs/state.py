"""State of a run: what it starts with, and what its results write.

What flows where::

    rights frozen ── read, while the acceptance is being written ──> the run's context
    state_updated ── scope, size, JSON ──┬──> store, by the journal, in the order of the results
                                         └──> refused: a warning on the run

The read is begun when the rights are frozen, and what it brings is not read again: later writes do
not show in the context. A write waits for nothing. It goes before the end of its run in the
journal, so that whoever has seen the run end, and the next run of the session, read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from runmesh.v1 import context_pb2, result_pb2

from host_service.agents.agent import Scope
from host_service.authorization.snapshot import Snapshot
from host_service.limits import Limits
from host_service.validation import Validator
from stores.errors import InvalidRecord
from stores.state import State, StateEntry, StateSnapshot

#: Scopes by how much a run is likely to need them: where a snapshot is cut, the last lose first.
SCOPES = (
    Scope.CONVERSATION,
    Scope.ACTOR,
    Scope.SUBJECT,
    Scope.BINDING,
    Scope.RUNNER,
    Scope.WORKSPACE,
)

_OF_WIRE: Mapping[int, Scope] = {
    result_pb2.StateScope.Value(f"STATE_SCOPE_{scope.name}"): scope for scope in Scope
}


class UpdateRefused(Exception):
    """A `state_updated` that is not stored; its text says why."""


class RunState:
    """State of the scopes that one run was granted.

    Args:
        snapshot: What the run was granted.
        store: Where state is.
        limits: How much a run starts with.
        validator: The contract's rules under these limits.
    """

    def __init__(
        self, *, snapshot: Snapshot, store: State, limits: Limits, validator: Validator
    ) -> None:
        self._keys = snapshot.state_keys
        self._workspace = snapshot.identity.workspace
        self._store = store
        self._limits = limits
        self._validator = validator
        self._reading: asyncio.Task[StateSnapshot] | None = None

    def begin_reading(self) -> None:
        """Begin to read what the run starts with; a run without state reads nothing."""
        if self._keys:
            keys = [self._keys[scope] for scope in SCOPES if scope in self._keys]
            self._reading = asyncio.create_task(self._read(keys))
            # A run that is not called after all asks for no outcome: nobody need be told of it.
            self._reading.add_done_callback(lambda done: done.cancelled() or done.exception())

    def stop_reading(self) -> None:
        """Forget what was begun, for a run that is not called after all."""
        if self._reading is not None:
            self._reading.cancel()

    async def fill(self, context: context_pb2.RunContext) -> None:
        """Give a context what was read.

        Raises:
            StoreError: It could not be read.
        """
        if self._reading is None:
            return
        found = await self._reading
        for scope, key in self._keys.items():
            values: Any = getattr(context.state, f"{scope.value}_json")
            for entry in found.entries[key]:
                values[entry.key] = entry.value
        context.state.truncated = found.truncated

    async def _read(self, keys: list[str]) -> StateSnapshot:
        return await self._store.snapshot(keys, most_bytes=self._limits.state_snapshot_bytes)

    def update(self, update: result_pb2.StateUpdated) -> asyncio.Future[StateEntry]:
        """Hand an update to the journal; what is returned is done when it is durable.

        Raises:
            UpdateRefused: The scope was not granted, or key or value break the contract's rules.
            StoreError: The journal takes nothing now.
        """
        violations = self._validator.find_violations(update)
        if violations:
            raise UpdateRefused("; ".join(map(str, violations)))
        scope = _OF_WIRE.get(update.scope)
        if scope is None or scope not in self._keys:
            named = scope.value if scope else str(update.scope)
            raise UpdateRefused(f"this run was not granted state of scope {named}")
        try:
            return self._store.set(
                self._keys[scope],
                update.key,
                update.value_json,
                workspace=retention_workspace(scope, self._workspace),
            )
        except InvalidRecord as error:
            raise UpdateRefused(str(error)) from error


def retention_workspace(scope: Scope, workspace: str) -> str:
    """Return whose retention a value is under: what agents keep for all workspaces is nobody's."""
    return "" if scope is Scope.BINDING else workspace
