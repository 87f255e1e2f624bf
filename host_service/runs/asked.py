"""What a runner's manifest asks for, in the words that the snapshot goes by."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from runmesh.v1 import manifest_pb2

from host_service.agents.follow_up import RunnerKind
from host_service.authorization.snapshot import Asked

# The enums have no type in common that can be named: generated code declares them as classes and
# makes them objects.
_GROUPS: tuple[tuple[str, Any, str], ...] = (
    ("models", manifest_pb2.ModelPermission, "MODEL_PERMISSION_"),
    ("tools", manifest_pb2.ToolPermission, "TOOL_PERMISSION_"),
    ("knowledge_bases", manifest_pb2.KnowledgeBasePermission, "KNOWLEDGE_BASE_PERMISSION_"),
    ("history", manifest_pb2.HistoryPermission, "HISTORY_PERMISSION_"),
    ("events", manifest_pb2.EventPermission, "EVENT_PERMISSION_"),
    ("artifacts", manifest_pb2.ArtifactAccess, "ARTIFACT_ACCESS_"),
    ("files", manifest_pb2.FileSource, "FILE_SOURCE_"),
)
# Those that can be absent are those that are true when they are.
_CAPABILITIES = tuple(
    (field.name, field.has_presence) for field in manifest_pb2.RunnerCapabilities.DESCRIPTOR.fields
)


def asked_by(manifest: manifest_pb2.RunnerManifest) -> Asked:
    """Return what a manifest asks for; values that this host does not know ask for nothing."""
    return _asked(manifest.SerializeToString(deterministic=True))


def kind_of(manifest: manifest_pb2.RunnerManifest | None) -> RunnerKind | None:
    """Return what a runner can do about a busy session; None for one that is not known."""
    if manifest is None:
        return None
    capabilities = manifest.capabilities
    return RunnerKind(
        is_stateful=capabilities.stateful_session, can_be_steered=capabilities.steering
    )


@lru_cache(maxsize=256)
def _asked(encoded: bytes) -> Asked:
    # A manifest is asked about at every run and changes with its plugin: bytes tell whether it is
    # the same.
    manifest = manifest_pb2.RunnerManifest.FromString(encoded)
    permissions, capabilities = manifest.permissions, manifest.capabilities
    return Asked(
        permissions=MappingProxyType(
            {
                name: _names(getattr(permissions, name), enum, prefix)
                for name, enum, prefix in _GROUPS
            }
        ),
        storage=_names(permissions.storage, manifest_pb2.StorageArea, "STORAGE_AREA_"),
        actions=frozenset(permissions.platform_actions),
        capabilities=frozenset(
            name
            for name, absent_is_true in _CAPABILITIES
            if getattr(capabilities, name) or (absent_is_true and not capabilities.HasField(name))  # type: ignore[arg-type]
        ),
    )


def _names(numbers: Iterable[int], enum: Any, prefix: str) -> frozenset[str]:
    known = set(enum.values())
    return frozenset(
        enum.Name(number).removeprefix(prefix).lower()
        for number in numbers
        if number in known and number
    )
