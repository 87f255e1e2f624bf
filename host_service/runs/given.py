"""What a run was given, as its runner is told of it: the snapshot's resources as messages."""

from __future__ import annotations

from functools import lru_cache

from runmesh.v1 import context_pb2, manifest_pb2

from host_service.authorization.snapshot import GivenFile, Snapshot
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.catalogue.model import Model
from host_service.catalogue.tool import Tool
from host_service.limits import Limits

_STORAGE_AREAS = {
    "plugin": manifest_pb2.STORAGE_AREA_PLUGIN,
    "workspace": manifest_pb2.STORAGE_AREA_WORKSPACE,
    "binding": manifest_pb2.STORAGE_AREA_BINDING,
}
# All tools are those of tool servers, which speak the Model Context Protocol.
_TOOL_TYPE = "mcp"


_LIMITS = Limits()


def resources_of(snapshot: Snapshot) -> context_pb2.AgentResources:
    """Return what a run was given."""
    resources = snapshot.resources
    return context_pb2.AgentResources(
        models=map(_model, resources.models),
        tools=_tools(snapshot.tools, resources.tools),
        knowledge_bases=map(_knowledge_base, resources.knowledge_bases),
        files=map(_file, resources.files),
        storage=[_STORAGE_AREAS[area] for area in sorted(snapshot.storage)],
        platform_actions=sorted(snapshot.actions),
    )


# Most runs of an agent have the same tools, and their schemas are long.
@lru_cache(maxsize=256)
def _tools(names: frozenset[str], known: tuple[Tool, ...]) -> tuple[context_pb2.ToolResource, ...]:
    by_name = {each.name: each for each in known}
    room_bytes = _LIMITS.tool_schemas_told_bytes
    told = []
    for name in sorted(names):
        resource = context_pb2.ToolResource(name=name, type=_TOOL_TYPE)
        tool = by_name.get(name)
        if tool is not None:
            resource.description = tool.description
            size = len(tool.told_schema_json.encode())
            if size <= min(_LIMITS.tool_schema_told_bytes, room_bytes):
                resource.parameters_schema_json = tool.told_schema_json
                room_bytes -= size
        told.append(resource)
    return tuple(told)


@lru_cache(maxsize=256)
def _model(model: Model) -> context_pb2.ModelResource:
    return context_pb2.ModelResource(
        model_id=model.id,
        kind=context_pb2.ModelKind.Value(f"MODEL_KIND_{model.kind.upper()}"),
        provider=model.provider,
        name=model.name or model.id,
        context_window_tokens=model.context_window_tokens,
        abilities=[
            context_pb2.ModelAbility.Value(f"MODEL_ABILITY_{ability.upper()}")
            for ability in model.abilities
        ],
    )


@lru_cache(maxsize=256)
def _knowledge_base(base: KnowledgeBase) -> context_pb2.KnowledgeBaseResource:
    return context_pb2.KnowledgeBaseResource(
        knowledge_base_id=base.id, name=base.name or base.id, kind=base.kind
    )


def _file(file: GivenFile) -> context_pb2.FileResource:
    return context_pb2.FileResource(
        file_id=file.artifact_id,
        name=file.name or file.artifact_id,
        mime_type=file.mime_type,
        source=manifest_pb2.FILE_SOURCE_CONFIG,
        artifact_id=file.artifact_id,
    )
