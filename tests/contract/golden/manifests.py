"""Golden manifests."""

from runmesh.v1 import manifest_pb2

from tests.contract.golden.values import METADATA, label


def manifest() -> manifest_pb2.RunnerManifest:
    """A manifest that says everything, and of each default the opposite."""
    return manifest_pb2.RunnerManifest(
        id="plugin:acme/echo.v2/default",
        name="default",
        label=label(),
        description=label(),
        protocol_version="1",
        version="1.2.3",
        capabilities=_capabilities(),
        permissions=_permissions(),
        context_policy=manifest_pb2.ContextPolicy(
            supports_history_pull=False,
            supports_history_search=True,
            supports_artifact_pull=False,
            owns_compaction=False,
            wants_static_context_refs=False,
        ),
        config_schema=[_number_field(), manifest_pb2.ConfigField(name="key", type="secret")],
        metadata=METADATA,
    )


def smallest_manifest() -> manifest_pb2.RunnerManifest:
    """A manifest that says no more than it must."""
    return manifest_pb2.RunnerManifest(
        id="plugin:acme/echo/default",
        name="default",
        label=label(),
        protocol_version="1",
        version="0.0.1",
    )


def _capabilities() -> manifest_pb2.RunnerCapabilities:
    return manifest_pb2.RunnerCapabilities(
        streaming=True,
        tool_calling=True,
        knowledge_retrieval=True,
        multimodal_input=True,
        skill_authoring=True,
        event_context=False,
        platform_api=True,
        interrupt=True,
        steering=True,
        stateful_session=True,
        self_managed_context=False,
    )


def _permissions() -> manifest_pb2.RunnerPermissions:
    return manifest_pb2.RunnerPermissions(
        models=[
            manifest_pb2.MODEL_PERMISSION_INVOKE,
            manifest_pb2.MODEL_PERMISSION_STREAM,
            manifest_pb2.MODEL_PERMISSION_RERANK,
            manifest_pb2.MODEL_PERMISSION_EMBED,
        ],
        tools=[manifest_pb2.TOOL_PERMISSION_DETAIL, manifest_pb2.TOOL_PERMISSION_CALL],
        knowledge_bases=[
            manifest_pb2.KNOWLEDGE_BASE_PERMISSION_LIST,
            manifest_pb2.KNOWLEDGE_BASE_PERMISSION_RETRIEVE,
        ],
        history=[manifest_pb2.HISTORY_PERMISSION_PAGE, manifest_pb2.HISTORY_PERMISSION_SEARCH],
        events=[manifest_pb2.EVENT_PERMISSION_GET, manifest_pb2.EVENT_PERMISSION_PAGE],
        artifacts=[
            manifest_pb2.ARTIFACT_ACCESS_METADATA,
            manifest_pb2.ARTIFACT_ACCESS_READ,
            manifest_pb2.ARTIFACT_ACCESS_CREATE,
        ],
        storage=[
            manifest_pb2.STORAGE_AREA_PLUGIN,
            manifest_pb2.STORAGE_AREA_WORKSPACE,
            manifest_pb2.STORAGE_AREA_BINDING,
        ],
        files=[manifest_pb2.FILE_SOURCE_CONFIG, manifest_pb2.FILE_SOURCE_KNOWLEDGE],
        platform_actions=["message.send", "message.recall"],
    )


def _number_field() -> manifest_pb2.ConfigField:
    return manifest_pb2.ConfigField(
        name="delay_seconds",
        type="select",
        label=label(),
        description=label(),
        required=True,
        default_json="0.1",
        options=[manifest_pb2.ConfigOption(value="0.1", label=label())],
        bounds=manifest_pb2.ConfigBounds(min=0.0, max=0.1, max_length=0, pattern=r"^\d+$"),
        shown_when=manifest_pb2.ConfigCondition(field="mode", equals_json='"slow"'),
    )
