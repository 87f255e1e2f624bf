"""The one set of rules: what every field that can arrive at the host must satisfy.

A rule stands here and in the field's comment in the contract, in the same words; a test holds the
two together. Rules of a kind that holds for every field of a type (text, metadata, numbers, times)
stand in the head of `types.proto` instead, and `check` applies them by type. Enums without
`Required` are open: a reader ignores values that it does not know.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from host_service.validation.rule_kinds import (
    KIB,
    MIB,
    CheckedApart,
    Count,
    Digest,
    Each,
    Json,
    LastPart,
    Length,
    MaxSize,
    Pattern,
    Range,
    Required,
    Rule,
    Unique,
)

_PLUGIN_PART: Final = "[a-z0-9][a-z0-9._-]{0,63}"
_RUNNER_ID: Final = Pattern(
    f"plugin:{_PLUGIN_PART}/{_PLUGIN_PART}/{_PLUGIN_PART}",
    f"`plugin:author/name/runner`, each part matching `{_PLUGIN_PART}`",
)
_PLUGIN_ID: Final = Pattern(
    f"{_PLUGIN_PART}/{_PLUGIN_PART}", f"`author/name`, each part matching `{_PLUGIN_PART}`"
)
_EVENT_TYPE: Final = r"[a-z0-9_]+(\.[a-z0-9_]+)+"
_PRODUCT_ID: Final = "[A-Za-z0-9][A-Za-z0-9._-]*"
_TYPE_WORD: Final = "[A-Za-z0-9][A-Za-z0-9._+-]*"
_CONFIG_NAME: Final = "[a-z][a-z0-9_]{0,63}"
_SERVER_ID: Final = "[A-Za-z0-9]([_-]?[A-Za-z0-9])*"
_WEB_ADDRESS: Final = Pattern("(https?://.+)?", "begins with `https://` or `http://`")

_REQUIRED: Final = (Required(),)
_ID: Final = (Required(), Length(1, 255))
_WORD: Final = (Required(), Length(1, 100))
_VERSION: Final = (Required(), Length(1, 64))
_UP_TO_64: Final = (Length(0, 64),)
_UP_TO_100: Final = (Length(0, 100),)
_UP_TO_255: Final = (Length(0, 255),)
_UP_TO_1024: Final = (Length(0, 1024),)
_UP_TO_2048: Final = (Length(0, 2048),)
_NAMED: Final = (Required(), Pattern(_PRODUCT_ID, f"matching `{_PRODUCT_ID}`"), Length(1, 255))
_JSON_VALUE: Final = (Json(),)
_JSON_OBJECT: Final = (Json(only_object=True),)
_AT_LEAST_ONE: Final = (Required(), Count(1))
_UP_TO_THOUSAND: Final = (Required(), Count(1, 1000))
_EACH_ID: Final = (Each(Length(1, 255)),)
_EACH_WORD: Final = (Each(Length(1, 100)),)
_PAGE_SIZE: Final = (Range(0, 100, "page_items"),)
_HITS: Final = (Range(0, 50, "search_items"),)
_INLINE: Final = (MaxSize(MIB, "inline_artifact_bytes"),)
_CHUNK: Final = (MaxSize(MIB, "chunk_bytes"),)
_DIGEST: Final = (Required(), Digest())
_STATE_VALUE: Final = (Required(), MaxSize(256 * KIB, "state_value_bytes"), Json())
_ACTION_VALUE: Final = (MaxSize(MIB, "action_bytes"), Json())
_APART: Final = (CheckedApart(),)
_SECRET: Final = (Length(0, 8192),)
_UNIQUE_IDS: Final = (Unique("id", "ids are unique"),)
_UNIQUE_NAMES: Final = (Unique("name", "names are unique"),)

_Fields = Mapping[str, tuple[Rule, ...]]

_TYPES: Final[Mapping[str, _Fields]] = {
    "LocalizedText": {"text": _AT_LEAST_ONE},
    "InlineContent": {"data": _INLINE, "mime_type": _ID, "name": _UP_TO_255},
    "UrlContent": {
        "url": (Required(), Length(1, 2048)),
        "mime_type": _UP_TO_255,
        "name": _UP_TO_255,
    },
    "PlatformContent": {"platform_id": _ID, "mime_type": _UP_TO_255, "name": _UP_TO_255},
    "ContentPart": {"content": _REQUIRED},
    "ArtifactRef": {
        "artifact_id": _ID,
        "type": _WORD,
        "mime_type": _UP_TO_255,
        "name": _UP_TO_255,
        "sha256": _DIGEST,
    },
    "ChatMessage": {
        "message_id": _UP_TO_255,
        "role": _REQUIRED,
        "tool_call_id": _UP_TO_255,
        "name": _UP_TO_255,
    },
    "ToolCall": {"id": _ID, "name": _ID},
    "ToolDefinition": {"name": _ID, "parameters_schema_json": (Required(), *_JSON_OBJECT)},
    "TokenUsage": {"model_id": _ID},
}

_MANIFEST: Final[Mapping[str, _Fields]] = {
    "RunnerManifest": {
        "id": (Required(), _RUNNER_ID),
        "name": (Required(), Length(1, 64), LastPart("id", "the last part of the id")),
        "label": _REQUIRED,
        "protocol_version": _REQUIRED,
        "version": _VERSION,
        "config_schema": (Unique("name", "names are unique"),),
    },
    "RunnerPermissions": {"platform_actions": _EACH_WORD},
    "ConfigField": {
        "name": (Required(), Pattern(_CONFIG_NAME, f"matching `{_CONFIG_NAME}`")),
        "type": _WORD,
        "label": _REQUIRED,
        "default_json": _JSON_VALUE,
    },
    "ConfigOption": {"value": _ID, "label": _REQUIRED},
    "ConfigCondition": {"field": _REQUIRED, "equals_json": (Required(), *_JSON_VALUE)},
}

_EVENT: Final[Mapping[str, _Fields]] = {
    "EventEnvelope": {
        "event_id": _UP_TO_255,
        "type": (Required(), Length(1, 100), Pattern(_EVENT_TYPE, f"matching `{_EVENT_TYPE}`")),
        "source_event_name": _UP_TO_255,
        "workspace_id": _UP_TO_255,
        "bot_id": _UP_TO_255,
        "conversation_id": _UP_TO_255,
        "thread_id": _UP_TO_255,
        "data_json": _JSON_VALUE,
        "adapter_extra_json": _JSON_OBJECT,
    },
    "Actor": {"type": _WORD, "id": _UP_TO_255, "name": _UP_TO_255},
    "Subject": {"type": _WORD, "id": _UP_TO_255, "data_json": _JSON_VALUE},
    "EventInput": {"message_chain_json": _JSON_VALUE},
    "DeliveryContext": {
        "surface": _WORD,
        "reply_target_json": _JSON_VALUE,
        "platform_capabilities_json": _JSON_OBJECT,
    },
    "RawEventRef": {
        "location": _REQUIRED,
        "artifact_id": (Length(1, 255),),
        "storage_key": (Length(1, 255),),
        "sha256": _DIGEST,
    },
}

_RESULT: Final[Mapping[str, _Fields]] = {
    "RunResponse": {"results": _APART},
    "RunResult": {"run_id": _ID, "payload": _REQUIRED},
    "MessageDelta": {"message_id": _UP_TO_255},
    "MessageCompleted": {"message": _REQUIRED},
    "ToolCallStarted": {"call_id": _ID, "tool_name": _ID, "parameters_json": _JSON_VALUE},
    "ToolCallCompleted": {
        "call_id": _ID,
        "tool_name": _ID,
        "result_json": _JSON_VALUE,
        "error_code": _UP_TO_255,
    },
    "ArtifactCreated": {"artifact": _REQUIRED, "type": _UP_TO_100},
    "StateUpdated": {"scope": _REQUIRED, "key": _ID, "value_json": _STATE_VALUE},
    "ActionRequested": {
        "action": _WORD,
        "target_json": _ACTION_VALUE,
        "payload_json": _ACTION_VALUE,
        "idempotency_key": _ID,
    },
    "UsageReported": {"usage": _REQUIRED},
    "LogLine": {"text": _REQUIRED},
    "RunCompleted": {"finish_reason": _WORD},
    "RunFailed": {"code": _WORD, "message": _REQUIRED},
}

_GATEWAY: Final[Mapping[str, _Fields]] = {
    "DispatchRequest": {"event": _REQUIRED, "agent_id": _UP_TO_255},
    "SubmitEventRequest": {"event": _REQUIRED, "agent_id": _UP_TO_255},
    "WatchRunRequest": {"run_id": _ID},
    "CancelRunRequest": {"run_id": _ID, "reason": _UP_TO_1024},
    "GetRunRequest": {"run_id": _ID},
    "ListRunsRequest": {
        "agent_id": _UP_TO_255,
        "conversation_key": _UP_TO_2048,
        "page_size": _PAGE_SIZE,
        "page_token": _UP_TO_1024,
    },
    "PageConversationRequest": {
        "workspace_id": _UP_TO_255,
        "bot_id": _UP_TO_255,
        "conversation_id": _ID,
        "thread_id": _UP_TO_255,
        "page_size": _PAGE_SIZE,
        "page_token": _UP_TO_1024,
    },
    "GatewayServiceCreateArtifactRequest": {"item": _REQUIRED, "chunk": _CHUNK},
    "GatewayServiceReadArtifactRequest": {"artifact_id": _ID},
}

_HOST_API: Final[Mapping[str, _Fields]] = {
    "InvokeModelRequest": {
        "model_id": _ID,
        "messages": _AT_LEAST_ONE,
        "tool_choice": _UP_TO_255,
        "extra_args_json": _JSON_OBJECT,
    },
    "StreamModelRequest": {
        "model_id": _ID,
        "messages": _AT_LEAST_ONE,
        "tool_choice": _UP_TO_255,
        "extra_args_json": _JSON_OBJECT,
    },
    "RerankDocumentsRequest": {
        "model_id": _ID,
        "query": _REQUIRED,
        "documents": _UP_TO_THOUSAND,
        "top_k": (Range(1),),
    },
    "EmbedTextsRequest": {"model_id": _ID, "texts": _UP_TO_THOUSAND},
    "GetToolDetailRequest": {"tool_name": _ID},
    "CallToolRequest": {
        "tool_name": _ID,
        "parameters_json": (Required(), *_JSON_OBJECT),
        "call_id": _UP_TO_255,
    },
    "ListKnowledgeBasesRequest": {"page_size": _PAGE_SIZE, "page_token": _UP_TO_1024},
    "RetrieveKnowledgeRequest": {
        "knowledge_base_ids": _EACH_ID,
        "query": _REQUIRED,
        "top_k": _HITS,
        "filters_json": _JSON_OBJECT,
    },
    "PageHistoryRequest": {
        "at_or_before": _UP_TO_255,
        "after": _UP_TO_255,
        "page_size": _PAGE_SIZE,
        "conversation_id": _UP_TO_255,
        "thread_id": _UP_TO_255,
        "page_token": _UP_TO_1024,
    },
    "SearchHistoryRequest": {
        "query": (Required(), Length(1, 1024)),
        "page_size": _HITS,
        "page_token": _UP_TO_1024,
    },
    "GetEventRequest": {"event_id": _ID},
    "PageEventsRequest": {
        "types": (Count(0, 100), *_EACH_WORD),
        "page_size": _PAGE_SIZE,
        "page_token": _UP_TO_1024,
    },
    "GetArtifactMetadataRequest": {"artifact_id": _ID},
    "ReadArtifactRequest": {"artifact_id": _ID, "length": (MaxSize(MIB, "range_bytes"),)},
    "StreamArtifactRequest": {"artifact_id": _ID},
    "ArtifactHeader": {
        "type": (*_WORD, Pattern(_TYPE_WORD, "a word of letters, digits and `._+-`")),
        "mime_type": _UP_TO_255,
        "name": _UP_TO_255,
        "sha256": (Digest(),),
    },
    "CreateArtifactRequest": {"item": _REQUIRED, "chunk": _CHUNK},
    "GetStateRequest": {"scope": _REQUIRED, "key": _ID},
    "SetStateRequest": {"scope": _REQUIRED, "key": _ID, "value_json": _STATE_VALUE},
    "DeleteStateRequest": {"scope": _REQUIRED, "key": _ID},
    "ListStateRequest": {
        "scope": _REQUIRED,
        "prefix": _UP_TO_255,
        "page_size": _PAGE_SIZE,
        "page_token": _UP_TO_1024,
    },
    "GetStorageRequest": {"area": _REQUIRED, "key": _ID},
    "SetStorageRequest": {
        "area": _REQUIRED,
        "key": _ID,
        "value": (MaxSize(3 * MIB, "storage_value_bytes"),),
    },
    "DeleteStorageRequest": {"area": _REQUIRED, "key": _ID},
    "ListStorageRequest": {
        "area": _REQUIRED,
        "prefix": _UP_TO_255,
        "page_size": _PAGE_SIZE,
        "page_token": _UP_TO_1024,
    },
    "RequestActionRequest": {"action": _REQUIRED},
    "AcknowledgeSteeringRequest": {"steering_ids": (*_AT_LEAST_ONE, *_EACH_ID)},
}

_ATTACH: Final[Mapping[str, _Fields]] = {
    "AttachRequest": {"message": _REQUIRED},
    "AttachHello": {
        "protocol_versions": _REQUIRED,
        "handshake": _REQUIRED,
        "runners": _APART,
        "host_address": _UP_TO_255,
    },
    "AttachResults": {"run_id": _ID, "results": _APART},
    "AttachRunEnded": {"run_id": _ID},
    "AttachInterruptAnswer": {"run_id": _ID},
    "HandshakeResponse": {
        "plugin_id": (Required(), Length(3, 129)),
        "plugin_version": _VERSION,
        "sdk_name": _UP_TO_64,
        "sdk_language": _UP_TO_64,
        "sdk_version": _UP_TO_64,
        "instance_id": _ID,
    },
}

_ADMIN: Final[Mapping[str, _Fields]] = {
    "Agent": {
        "id": _NAMED,
        "name": _UP_TO_255,
        "runner_id": (Required(), _RUNNER_ID),
        "config_json": (MaxSize(256 * KIB, "config_bytes"), *_JSON_OBJECT),
    },
    "ResourcePolicy": {
        "models": _EACH_ID,
        "tools": _EACH_ID,
        "knowledge_bases": _EACH_ID,
        "platform_actions": _EACH_WORD,
    },
    "ApprovalRule": {"action": _WORD},
    "ApprovalCondition": {
        "field": (
            *_ID,
            Pattern(
                r"(?:target|payload)(?:\..+)?",
                "`target` or `payload`, or one of them, a dot and a path into its JSON",
            ),
        ),
        "equals": _UP_TO_1024,
    },
    "ListActionsRequest": {
        "agent_id": _UP_TO_255,
        "run_id": _UP_TO_255,
        "page_size": _PAGE_SIZE,
        "page_token": _UP_TO_1024,
    },
    "GetActionRequest": {"action_id": _ID},
    "DecideActionRequest": {
        "action_id": _ID,
        "decision": _REQUIRED,
        "reason": _UP_TO_1024,
    },
    "SkillSelection": {"names": _EACH_ID},
    "DeliveryPolicy": {"fallback_target": _UP_TO_255},
    "Binding": {
        "id": _NAMED,
        "agent_id": _ID,
        "event_types": (
            *_AT_LEAST_ONE,
            *_EACH_WORD,
            Each(
                Pattern(
                    rf"{_EVENT_TYPE}|[a-z0-9_]+(\.[a-z0-9_]+)*\.\*",
                    "exact or `prefix.*`",
                )
            ),
        ),
    },
    "BindingScope": {
        "workspace_id": _UP_TO_255,
        "bot_id": _UP_TO_255,
        "conversation_id": _UP_TO_255,
        "thread_id": _UP_TO_255,
        "actor_id": _UP_TO_255,
    },
    "BindingFilter": {"field": _ID, "equals": _UP_TO_1024},
    "Model": {
        "id": _NAMED,
        "name": _UP_TO_255,
        "kind": _REQUIRED,
        "provider": _WORD,
        "model_name": _ID,
        "base_url": (_WEB_ADDRESS, Length(0, 2048)),
        "api_key": _SECRET,
        "options_json": _JSON_OBJECT,
    },
    "SecretEntry": {"name": (Required(), Length(1, 128)), "value": _SECRET},
    "ToolServer": {
        "id": (Required(), Pattern(_SERVER_ID, f"matching `{_SERVER_ID}`"), Length(1, 32)),
        "name": _UP_TO_255,
        "transport": _REQUIRED,
    },
    "ToolCommand": {
        "command": (Required(), Length(1, 1024)),
        "args": (Each(Length(0, 8192)),),
        "env": _UNIQUE_NAMES,
    },
    "ToolAddress": {
        "url": (Required(), _WEB_ADDRESS, Length(1, 2048)),
        "headers": _UNIQUE_NAMES,
    },
    "ToolSelection": {"names": _EACH_ID},
    "KnowledgeBase": {
        "id": _NAMED,
        "name": _UP_TO_255,
        "kind": _UP_TO_100,
        "description": _UP_TO_2048,
        "embedding_model": _UP_TO_255,
    },
    "Chunking": {"characters": (Range(0, 20000),)},
    "Policy": {
        "workspace_id": _ID,
        "bots": _UNIQUE_IDS,
        "actors": _UNIQUE_IDS,
        "instructions": (Length(0, 65536),),
    },
    "AllowanceOf": {"id": _ID, "allowance": _REQUIRED},
    "NameSelection": {"names": _EACH_ID},
    "DeclaredKey": {
        "name": _ID,
        "role": _REQUIRED,
        "workspace_id": _UP_TO_255,
        "bot_id": _UP_TO_255,
        "secret": (Required(), Length(32, 255)),
    },
    "PluginSettings": {
        "plugin_id": (Required(), _PLUGIN_ID),
        "settings_json": (MaxSize(256 * KIB, "config_bytes"), *_JSON_OBJECT),
        "secrets": _UNIQUE_NAMES,
    },
    "ApplyRequest": {
        "agents": _UNIQUE_IDS,
        "bindings": _UNIQUE_IDS,
        "models": _UNIQUE_IDS,
        "tool_servers": _UNIQUE_IDS,
        "knowledge_bases": _UNIQUE_IDS,
        "policies": (Unique("workspace_id", "workspaces are unique"),),
        "keys": _UNIQUE_NAMES,
        "plugins": (Unique("plugin_id", "plugins are unique"),),
    },
    "GetAgentRequest": {"agent_id": _ID},
    "ListAgentsRequest": {"page_size": _PAGE_SIZE, "page_token": _UP_TO_1024},
    "DeleteAgentRequest": {"agent_id": _ID},
    "ListBindingsRequest": {
        "agent_id": _UP_TO_255,
        "page_size": _PAGE_SIZE,
        "page_token": _UP_TO_1024,
    },
    "DeleteBindingRequest": {"binding_id": _ID},
    "GetModelRequest": {"model_id": _ID},
    "ListModelsRequest": {"page_size": _PAGE_SIZE, "page_token": _UP_TO_1024},
    "DeleteModelRequest": {"model_id": _ID},
    "TestModelRequest": {"model_id": _ID, "text": _UP_TO_1024},
    "GetToolServerRequest": {"tool_server_id": _ID},
    "ListToolServersRequest": {"page_size": _PAGE_SIZE, "page_token": _UP_TO_1024},
    "DeleteToolServerRequest": {"tool_server_id": _ID},
    "ListToolServerStatusesRequest": {
        "tool_server_id": _UP_TO_255,
        "page_size": _PAGE_SIZE,
        "page_token": _UP_TO_1024,
    },
    "GrantToolsRequest": {"agent_id": _ID, "grant": _EACH_ID, "withdraw": _EACH_ID},
    "CallToolRequest": {"tool_name": _ID, "parameters_json": (Required(), *_JSON_OBJECT)},
    "GetKnowledgeBaseRequest": {"knowledge_base_id": _ID},
    "ListKnowledgeBasesRequest": {"page_size": _PAGE_SIZE, "page_token": _UP_TO_1024},
    "DeleteKnowledgeBaseRequest": {"knowledge_base_id": _ID},
    "DocumentInfo": {
        "knowledge_base_id": _ID,
        "document_id": _ID,
        "name": _UP_TO_255,
        "source": _UP_TO_2048,
        "mime_type": _UP_TO_255,
        "metadata_json": (MaxSize(64 * KIB, "document_metadata_bytes"), *_JSON_OBJECT),
    },
    "AddDocumentRequest": {"item": _REQUIRED, "chunk": _CHUNK},
    "ListDocumentsRequest": {
        "knowledge_base_id": _ID,
        "page_size": _PAGE_SIZE,
        "page_token": _UP_TO_1024,
    },
    "DeleteDocumentRequest": {"knowledge_base_id": _ID, "document_id": _ID},
    "CountDocumentsRequest": {"knowledge_base_id": _ID},
    "EmbedDocumentsRequest": {"knowledge_base_id": _ID},
    "SearchKnowledgeRequest": {
        "knowledge_base_ids": (*_AT_LEAST_ONE, *_EACH_ID),
        "query": _REQUIRED,
        "top_k": _HITS,
        "filters_json": _JSON_OBJECT,
    },
    "GrantKnowledgeBaseRequest": {"knowledge_base_id": _ID, "agent_id": _ID},
    "GetPolicyRequest": {"workspace_id": _ID},
    "ListPoliciesRequest": {"page_size": _PAGE_SIZE, "page_token": _UP_TO_1024},
    "DeletePolicyRequest": {"workspace_id": _ID},
    "GetPluginSettingsRequest": {"plugin_id": _ID},
    "ListPluginSettingsRequest": {"page_size": _PAGE_SIZE, "page_token": _UP_TO_1024},
    "DeletePluginSettingsRequest": {"plugin_id": _ID},
    "RestartPluginRequest": {"plugin_id": (Required(), _PLUGIN_ID)},
    "DrainInstanceRequest": {"instance_id": _ID},
    "ResumeInstanceRequest": {"instance_id": _ID},
    "CreateApiKeyRequest": {
        "name": _ID,
        "role": _REQUIRED,
        "workspace_id": _UP_TO_255,
        "bot_id": _UP_TO_255,
    },
    "ListApiKeysRequest": {"page_size": _PAGE_SIZE, "page_token": _UP_TO_1024},
    "RevokeApiKeyRequest": {"key_id": _ID},
    "CreateAttachTokenRequest": {"plugin_id": (Required(), _PLUGIN_ID)},
    "ListAttachTokensRequest": {"page_size": _PAGE_SIZE, "page_token": _UP_TO_1024},
    "RevokeAttachTokenRequest": {"token_id": _ID},
    "ExplainRunRequest": {"run_id": _ID},
    "ReplayRunRequest": {"run_id": _ID, "runner_address": _UP_TO_255, "runner_id": _UP_TO_255},
}


def _by_full_name(package: str, *tables: Mapping[str, _Fields]) -> dict[str, tuple[Rule, ...]]:
    return {
        f"{package}.{message}.{name}": rules
        for table in tables
        for message, fields in table.items()
        for name, rules in fields.items()
    }


RULES: Final[Mapping[str, tuple[Rule, ...]]] = MappingProxyType(
    _by_full_name("runmesh.v1", _TYPES, _MANIFEST, _EVENT, _RESULT, _GATEWAY, _HOST_API, _ATTACH)
    | _by_full_name("runmesh.admin.v1", _ADMIN)
)
"""The rules of a field, or of a oneof, by its full name. They are tried in order, and the first
that is broken is told."""

MESSAGE_SIZES: Final[Mapping[str, MaxSize]] = MappingProxyType(
    {
        "runmesh.v1.EventEnvelope": MaxSize(2 * MIB, "event_bytes"),
        "runmesh.v1.RunResult": MaxSize(
            MIB, "result_bytes", uncounted=("artifact_created", "inline", "data")
        ),
        "runmesh.v1.RunResponse": MaxSize(3 * MIB, "frame_bytes"),
        "runmesh.v1.AttachResults": MaxSize(3 * MIB, "frame_bytes"),
    }
)
"""How large a message may be as a whole, by its full name."""
