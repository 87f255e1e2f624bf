"""What each call needs: a permission and a capability of the manifest, an area, an action."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from runmesh.v1 import manifest_pb2 as manifest
from runmesh.v1 import result_pb2

from runner_sdk._standin.active_run import ActiveRun
from runner_sdk._standin.refusals import refused
from runner_sdk.errors import HostCallError


class _Need(NamedTuple):
    group: str = ""
    permission: int = 0
    word: str = ""
    capability: str = ""


_NEEDS: Mapping[str, _Need] = {
    "InvokeModel": _Need("models", manifest.MODEL_PERMISSION_INVOKE, "invoke"),
    "StreamModel": _Need("models", manifest.MODEL_PERMISSION_STREAM, "stream"),
    "RerankDocuments": _Need("models", manifest.MODEL_PERMISSION_RERANK, "rerank"),
    "EmbedTexts": _Need("models", manifest.MODEL_PERMISSION_EMBED, "embed"),
    "GetToolDetail": _Need("tools", manifest.TOOL_PERMISSION_DETAIL, "detail", "tool_calling"),
    "CallTool": _Need("tools", manifest.TOOL_PERMISSION_CALL, "call", "tool_calling"),
    "ListKnowledgeBases": _Need(
        "knowledge_bases",
        manifest.KNOWLEDGE_BASE_PERMISSION_LIST,
        "list",
        "knowledge_retrieval",
    ),
    "RetrieveKnowledge": _Need(
        "knowledge_bases",
        manifest.KNOWLEDGE_BASE_PERMISSION_RETRIEVE,
        "retrieve",
        "knowledge_retrieval",
    ),
    "PageHistory": _Need("history", manifest.HISTORY_PERMISSION_PAGE, "page"),
    "SearchHistory": _Need("history", manifest.HISTORY_PERMISSION_SEARCH, "search"),
    "GetEvent": _Need("events", manifest.EVENT_PERMISSION_GET, "get"),
    "PageEvents": _Need("events", manifest.EVENT_PERMISSION_PAGE, "page"),
    "GetArtifactMetadata": _Need("artifacts", manifest.ARTIFACT_ACCESS_METADATA, "metadata"),
    "ReadArtifact": _Need("artifacts", manifest.ARTIFACT_ACCESS_READ, "read"),
    "StreamArtifact": _Need("artifacts", manifest.ARTIFACT_ACCESS_READ, "read"),
    "CreateArtifact": _Need("artifacts", manifest.ARTIFACT_ACCESS_CREATE, "create"),
    "RequestAction": _Need(capability="platform_api"),
    "PullSteering": _Need(capability="steering"),
    "AcknowledgeSteering": _Need(capability="steering"),
}


def refusal_for_rights(method: str, run: ActiveRun, request: Any) -> HostCallError | None:
    """Returns why a run may not make a call at all; None where it may."""
    lacking = _lacking(method, run, request)
    if lacking is None:
        return None
    return refused(
        "UNAUTHORIZED", f"{method} needs {lacking}, which {run.manifest.id} does not have"
    )


def refusal_for_scope(run: ActiveRun, request: Any, scopes: frozenset[int]) -> HostCallError | None:
    """Returns why a run may not use the scope of state that a call names; None where it may."""
    if "scope" not in request.DESCRIPTOR.fields_by_name:
        return None
    if request.scope in scopes and run.has_identity(request.scope):
        return None
    known = dict(result_pb2.StateScope.items())
    names = {number: name.removeprefix("STATE_SCOPE_").lower() for name, number in known.items()}
    scope = names.get(request.scope, str(request.scope))
    return refused("UNAUTHORIZED", f"the run has no state of scope {scope}")


def _lacking(method: str, run: ActiveRun, request: Any) -> str | None:
    need = _NEEDS.get(method, _Need())
    permissions, capabilities = run.manifest.permissions, run.manifest.capabilities
    if need.group and need.permission not in getattr(permissions, need.group):
        return f"the permission {need.group}: {need.word}"
    if need.capability and not getattr(capabilities, need.capability):
        return f"the capability {need.capability}"
    if method.endswith("Storage") and request.area and request.area not in permissions.storage:
        return f"the storage area {request.area}"
    if method == "RequestAction":
        action = request.action.action
        if action and action not in permissions.platform_actions:
            return f"the action {action!r}"
    return None
