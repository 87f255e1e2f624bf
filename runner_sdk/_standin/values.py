"""State and storage of the stand-in host."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from runmesh.v1 import host_api_pb2 as api

from runner_sdk._json import from_json, to_json
from runner_sdk._standin.active_run import ActiveRun
from runner_sdk._standin.pages import page_of
from runner_sdk._standin.refusals import not_found, refused


class StandInState:
    """Values of state, by scope and key; each counts its writes."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[str, api.StateEntry]] = {}

    def values(self, scope: int) -> dict[str, Any]:
        """Returns the keys and values of a scope."""
        return {key: from_json(text) for key, text in self.texts(scope).items()}

    def texts(self, scope: int) -> dict[str, str]:
        """Returns the keys and values of a scope, as JSON texts."""
        entries = self._entries.get(scope, {})
        return {key: entry.value_json for key, entry in sorted(entries.items())}

    def write(self, scope: int, key: str, value_json: str) -> api.StateEntry:
        """Writes a value in any case."""
        entries = self._entries.setdefault(scope, {})
        version = entries[key].version + 1 if key in entries else 1
        entry = api.StateEntry(key=key, value_json=value_json, version=version)
        entry.updated_at.GetCurrentTime()
        entries[key] = entry
        return entry

    def seed(self, scope: int, values: Mapping[str, Any]) -> None:
        """Writes the values that a test gives."""
        for key, value in values.items():
            self.write(scope, key, to_json(value, field=f"state {key!r}"))

    def get(self, _: ActiveRun, request: api.GetStateRequest) -> api.GetStateResponse:
        """Reads a value."""
        entry = self._entries.get(request.scope, {}).get(request.key)
        if entry is None:
            raise not_found("state", request.key)
        return api.GetStateResponse(entry=entry)

    def set(self, _: ActiveRun, request: api.SetStateRequest) -> api.SetStateResponse:
        """Writes a value, unless it has another version than expected."""
        self._require_version(request)
        entry = self.write(request.scope, request.key, request.value_json)
        return api.SetStateResponse(version=entry.version)

    def delete(self, _: ActiveRun, request: api.DeleteStateRequest) -> api.DeleteStateResponse:
        """Removes a value, unless it has another version than expected."""
        self._require_version(request)
        removed = self._entries.get(request.scope, {}).pop(request.key, None)
        return api.DeleteStateResponse(existed=removed is not None)

    def list(self, _: ActiveRun, request: api.ListStateRequest) -> api.ListStateResponse:
        """Lists values by key."""
        entries = sorted(self._entries.get(request.scope, {}).items())
        found, token = page_of(
            request, [entry for entry in entries if entry[0].startswith(request.prefix)]
        )
        return api.ListStateResponse(entries=found, next_page_token=token)

    def _require_version(self, request: api.SetStateRequest | api.DeleteStateRequest) -> None:
        if not request.HasField("expected_version"):
            return
        entry = self._entries.get(request.scope, {}).get(request.key)
        version = entry.version if entry is not None else 0
        if version != request.expected_version:
            raise refused(
                "CONFLICT",
                f"state {request.key!r} has the version {version}, not {request.expected_version}",
                resource=request.key,
            )


@dataclass(frozen=True, slots=True)
class _Stored:
    value: bytes
    seconds: float


class StandInStorage:
    """Values of storage, by area and key."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[str, _Stored]] = {}

    def values(self, area: int) -> dict[str, bytes]:
        """Returns the keys and values of an area."""
        return {key: stored.value for key, stored in sorted(self._entries.get(area, {}).items())}

    def write(self, area: int, key: str, value: bytes) -> None:
        """Stores a value."""
        self._entries.setdefault(area, {})[key] = _Stored(value, time.time())

    def get(self, _: ActiveRun, request: api.GetStorageRequest) -> api.GetStorageResponse:
        """Reads a value."""
        stored = self._entries.get(request.area, {}).get(request.key)
        if stored is None:
            raise not_found("value of storage", request.key)
        return api.GetStorageResponse(value=stored.value, updated_at=_moment(stored))

    def set(self, _: ActiveRun, request: api.SetStorageRequest) -> api.SetStorageResponse:
        """Stores a value."""
        self.write(request.area, request.key, request.value)
        return api.SetStorageResponse()

    def delete(self, _: ActiveRun, request: api.DeleteStorageRequest) -> api.DeleteStorageResponse:
        """Removes a value."""
        removed = self._entries.get(request.area, {}).pop(request.key, None)
        return api.DeleteStorageResponse(existed=removed is not None)

    def list(self, _: ActiveRun, request: api.ListStorageRequest) -> api.ListStorageResponse:
        """Lists keys."""
        entries = [
            (
                key,
                api.StorageEntry(key=key, size_bytes=len(stored.value), updated_at=_moment(stored)),
            )
            for key, stored in sorted(self._entries.get(request.area, {}).items())
            if key.startswith(request.prefix)
        ]
        found, token = page_of(request, entries)
        return api.ListStorageResponse(entries=found, next_page_token=token)


def _moment(stored: _Stored) -> Timestamp:
    moment = Timestamp()
    moment.FromMilliseconds(int(stored.seconds * 1000))
    return moment
