"""What each HostAPI call needs of a run's rights, and what its audit row names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runmesh.v1 import manifest_pb2, result_pb2

from host_service.agents.agent import Scope
from host_service.authorization.snapshot import Snapshot

_SCOPES: Mapping[int, Scope] = {
    result_pb2.StateScope.Value(f"STATE_SCOPE_{scope.name}"): scope for scope in Scope
}
_AREAS: Mapping[int, str] = {
    manifest_pb2.STORAGE_AREA_PLUGIN: "plugin",
    manifest_pb2.STORAGE_AREA_WORKSPACE: "workspace",
    manifest_pb2.STORAGE_AREA_BINDING: "binding",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one call needs.

    Attributes:
        group: The group of the permission, such as `history`; empty: it needs none.
        permission: The permission.
        capability: What the runner must be able to do; empty: nothing special.
        resource: The field of the request that names what it is about; empty: nothing.
        has_scope: Whether the request names a scope of state.
        has_area: Whether the request names an area of storage, which must be granted.
        names_action: Whether the request names an action, which the manifest must declare.
        sizes_after_resource: Whether the call itself looks at sizes, after it has found what the
            request names.
    """

    group: str = ""
    permission: str = ""
    capability: str = ""
    resource: str = ""
    has_scope: bool = False
    has_area: bool = False
    names_action: bool = False
    sizes_after_resource: bool = False

    def missing(self, snapshot: Snapshot, request: Any) -> str | None:
        """Return what a run lacks for a call, in words; None if it may make it."""
        if self.group and not snapshot.grants(self.group, self.permission):
            return f"the permission {self.group}: {self.permission}"
        if self.capability and self.capability not in snapshot.capabilities:
            return f"the capability {self.capability}"
        if self.has_area:
            return _missing_area(snapshot, request)
        if self.names_action:
            action = request.action.action
            # What is declared and was not granted is recorded, and says so.
            if action and action not in snapshot.declared_actions:
                return f"the action {action!r}"
        return None

    def missing_scope(self, snapshot: Snapshot, request: Any) -> str | None:
        """Return which scope a run lacks for a call, in words; None if it lacks none."""
        if not self.has_scope:
            return None
        scope = state_scope(request.scope)
        if scope in snapshot.state_keys:
            return None
        return f"state of scope {self.scope_of(request)}"

    def resource_of(self, request: Any) -> str:
        """Return what a call is about."""
        if not self.resource or request is None:
            return ""
        value: Any = request
        for name in self.resource.split("."):
            value = getattr(value, name)
        return value if isinstance(value, str) else ", ".join(value)

    def scope_of(self, request: Any) -> str:
        """Return the scope or area that a call names."""
        if self.has_scope:
            number = request.scope
            return str(state_scope(number) or number)
        if self.has_area:
            number = request.area
            return storage_area(number) or str(number)
        return ""


def state_scope(number: int) -> Scope | None:
    """Return the scope that a request means; None for one that this host does not know."""
    return _SCOPES.get(number)


def storage_area(number: int) -> str | None:
    """Return the area that a request means; None for one that this host does not know."""
    return _AREAS.get(number)


def _missing_area(snapshot: Snapshot, request: Any) -> str | None:
    number = request.area
    # Not set is the fields' rule to tell.
    if not number or storage_area(number) in snapshot.storage:
        return None
    return f"the storage area {storage_area(number) or number}"


_STATE = Need(has_scope=True, resource="key")
_STATE_LIST = Need(has_scope=True, resource="prefix")
_STORAGE = Need(has_area=True, resource="key")
_STORAGE_LIST = Need(has_area=True, resource="prefix")

#: What every call of the service needs, by its name.
NEEDS: Mapping[str, Need] = {
    "InvokeModel": Need(group="models", permission="invoke", resource="model_id"),
    "StreamModel": Need(group="models", permission="stream", resource="model_id"),
    "RerankDocuments": Need(group="models", permission="rerank", resource="model_id"),
    "EmbedTexts": Need(group="models", permission="embed", resource="model_id"),
    "GetToolDetail": Need(
        group="tools", permission="detail", capability="tool_calling", resource="tool_name"
    ),
    "CallTool": Need(
        group="tools", permission="call", capability="tool_calling", resource="tool_name"
    ),
    "ListKnowledgeBases": Need(
        group="knowledge_bases", permission="list", capability="knowledge_retrieval"
    ),
    "RetrieveKnowledge": Need(
        group="knowledge_bases",
        permission="retrieve",
        capability="knowledge_retrieval",
        resource="knowledge_base_ids",
    ),
    "PageHistory": Need(group="history", permission="page", resource="conversation_id"),
    "SearchHistory": Need(group="history", permission="search"),
    "GetEvent": Need(group="events", permission="get", resource="event_id"),
    "PageEvents": Need(group="events", permission="page"),
    "GetArtifactMetadata": Need(group="artifacts", permission="metadata", resource="artifact_id"),
    "ReadArtifact": Need(
        group="artifacts", permission="read", resource="artifact_id", sizes_after_resource=True
    ),
    "StreamArtifact": Need(group="artifacts", permission="read", resource="artifact_id"),
    "CreateArtifact": Need(group="artifacts", permission="create"),
    "GetState": _STATE,
    "SetState": _STATE,
    "DeleteState": _STATE,
    "ListState": _STATE_LIST,
    "GetStorage": _STORAGE,
    "SetStorage": _STORAGE,
    "DeleteStorage": _STORAGE,
    "ListStorage": _STORAGE_LIST,
    "GetPrompt": Need(),
    "RequestAction": Need(capability="platform_api", names_action=True, resource="action.action"),
    "PullSteering": Need(capability="steering"),
    "AcknowledgeSteering": Need(capability="steering", resource="steering_ids"),
}
