"""The requests that the kit makes: runs as a host hands them over, and stranger ones."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from google.protobuf.message import Message
from runmesh.v1 import (
    context_pb2,
    event_pb2,
    manifest_pb2,
    run_pb2,
    types_pb2,
)

from host_service.conformance.host_api import MODEL_ID, Grant, KitHost

# A field number that no version of the contract will use, with a text in it: tag, length, bytes.
_UNKNOWN_FIELD = b"\xfa\xff\xff\x3f\x07unknown"
# A number that no enum of the contract has.
_UNKNOWN_NUMBER = 7_001
_INT64 = 2**63 - 1
_MODEL_SELECTORS = frozenset({"llm-model-selector", "model-fallback-selector"})


def run_request(
    manifest: manifest_pb2.RunnerManifest,
    *,
    host: KitHost,
    grant: Grant,
    text: str | None,
    event_type: str,
    config: Mapping[str, Any],
    timeout_seconds: float | None,
) -> run_pb2.RunRequest:
    """Makes a run as a host makes it of an event."""
    context = context_pb2.RunContext(
        run_id=grant.run_id,
        trigger=context_pb2.Trigger(type=event_type, source=event_pb2.EVENT_SOURCE_API),
        event=context_pb2.EventContext(
            event_id=f"event-{grant.run_id}", type=event_type, source=event_pb2.EVENT_SOURCE_API
        ),
        conversation=context_pb2.Conversation(conversation_id="conformance"),
        actor=event_pb2.Actor(type="user", id="conformance-user", name="Conformance"),
        input=event_pb2.EventInput(text=text),
        delivery=event_pb2.DeliveryContext(surface="api", supports_streaming=True),
        resources=_resources(manifest),
        context=_access(manifest),
        state=context_pb2.StateSnapshot(),
        runtime=context_pb2.RuntimeContext(
            host_id=host.host_id,
            host_version="0",
            protocol_version="1",
            trace_id=secrets.token_hex(16),
            attempt=1,
        ),
        agent_id="conformance",
        binding_id="conformance",
        session_key=f"conformance-{grant.run_id}",
        config_json=config_json(manifest, config),
    )
    context.trigger.time.FromDatetime(datetime.now(UTC))
    if text is not None:
        context.input.parts.add().text = text
    request = run_pb2.RunRequest(runner_id=manifest.id, context=context)
    if timeout_seconds is not None:
        request.timeout.FromNanoseconds(round(timeout_seconds * 1e9))
        context.runtime.timeout.CopyFrom(request.timeout)
    give_access(request, host, grant)
    return request


def give_access(request: run_pb2.RunRequest, host: KitHost, grant: Grant) -> None:
    """Writes into a request how its run reaches its host."""
    request.host_access.CopyFrom(
        run_pb2.HostAccess(
            host_id=host.host_id,
            address=host.address,
            run_token=grant.run_token,
            instance_token=grant.instance_token,
        )
    )


def config_json(manifest: manifest_pb2.RunnerManifest, config: Mapping[str, Any]) -> str:
    """Makes a configuration: what was chosen, over defaults, over what a field's type suggests."""
    values: dict[str, Any] = {}
    for field in manifest.config_schema:
        if field.HasField("default_json"):
            values[field.name] = json.loads(field.default_json)
        elif field.required or field.type in _MODEL_SELECTORS:
            values[field.name] = _made_up(field)
    return json.dumps(values | dict(config), ensure_ascii=False)


def _made_up(field: manifest_pb2.ConfigField) -> Any:
    """A value for a required field that has no default."""
    least = field.bounds.min if field.bounds.HasField("min") else 0
    if field.options:
        first = field.options[0].value
        return [first] if field.type == "multi-select" else first
    by_type: dict[str, Any] = {
        "integer": int(least),
        "float": float(least),
        "boolean": False,
        "json": {},
        "prompt-editor": [{"role": "system", "content": "Answer briefly."}],
        "llm-model-selector": MODEL_ID,
        "model-fallback-selector": {"primary": MODEL_ID, "fallbacks": []},
        "knowledge-base-multi-selector": [],
        "tool-multi-selector": [],
        "multi-select": [],
    }
    return by_type.get(field.type, "conformance")


def _resources(manifest: manifest_pb2.RunnerManifest) -> context_pb2.AgentResources:
    resources = context_pb2.AgentResources(storage=manifest.permissions.storage)
    if manifest.permissions.models:
        resources.models.add(
            model_id=MODEL_ID,
            kind=context_pb2.MODEL_KIND_CHAT,
            provider="conformance",
            name="Conformance",
        )
    return resources


def _access(manifest: manifest_pb2.RunnerManifest) -> context_pb2.ContextAccess:
    permissions = manifest.permissions
    return context_pb2.ContextAccess(
        conversation_id="conformance",
        inline_policy=context_pb2.InlinePolicy(
            mode=context_pb2.INLINE_MODE_CURRENT_EVENT, delivered_count=1
        ),
        available_apis=context_pb2.AvailableApis(
            history_page=manifest_pb2.HISTORY_PERMISSION_PAGE in permissions.history,
            history_search=manifest_pb2.HISTORY_PERMISSION_SEARCH in permissions.history,
            event_get=manifest_pb2.EVENT_PERMISSION_GET in permissions.events,
            event_page=manifest_pb2.EVENT_PERMISSION_PAGE in permissions.events,
            artifact_metadata=manifest_pb2.ARTIFACT_ACCESS_METADATA in permissions.artifacts,
            artifact_read=manifest_pb2.ARTIFACT_ACCESS_READ in permissions.artifacts,
            state=True,
            storage=bool(permissions.storage),
            prompt=True,
            steering=manifest.capabilities.steering,
        ),
    )


def leave_bare(request: run_pb2.RunRequest) -> None:
    """Takes everything from a run that a host may leave out."""
    context = request.context
    bare = context_pb2.RunContext(
        run_id=context.run_id,
        trigger=context.trigger,
        event=context_pb2.EventContext(
            event_id=context.event.event_id, type=context.event.type, source=context.event.source
        ),
        input=event_pb2.EventInput(),
        delivery=event_pb2.DeliveryContext(surface="api"),
        resources=context_pb2.AgentResources(),
        context=context_pb2.ContextAccess(
            inline_policy=context.context.inline_policy,
            available_apis=context_pb2.AvailableApis(),
        ),
        state=context_pb2.StateSnapshot(),
        runtime=context.runtime,
        agent_id=context.agent_id,
        session_key=context.session_key,
        config_json=context.config_json,
    )
    bare.runtime.ClearField("timeout")
    request.context.CopyFrom(bare)
    request.ClearField("timeout")


def fill_up(request: run_pb2.RunRequest) -> None:
    """Sets what a run seldom has: every kind of part, large numbers, deep and exact JSON."""
    context = request.context
    digest = bytes(range(32))
    exact = f'{{"id":{_INT64},"deep":{"[" * 50}{"]" * 50},"text":"\\ud83d\\ude00"}}'
    context.event.source_event_name = "SomethingHappened"
    context.event.data_json = exact
    context.event.raw_ref.storage_key = "raw/1"
    context.event.raw_ref.size_bytes, context.event.raw_ref.sha256 = _INT64, digest
    context.adapter_json = exact
    context.conversation.thread_id = "thread"
    context.conversation.sender_id = str(_INT64)
    context.subject.type, context.subject.id = "message", str(_INT64)
    context.subject.data_json = exact
    context.actor.metadata["level"] = "1"
    context.input.message_chain_json = f"[{exact}]"
    parts = context.input.parts
    parts.add().inline.CopyFrom(
        types_pb2.InlineContent(data=digest, mime_type="image/png", name="p.png")
    )
    parts.add().url.CopyFrom(types_pb2.UrlContent(url="https://example.com/a.png"))
    reference = types_pb2.ArtifactRef(
        artifact_id="artifact", type="file", name="a.txt", size_bytes=_INT64, sha256=digest
    )
    parts.add().artifact.CopyFrom(reference)
    context.input.attachments.append(reference)
    context.delivery.reply_target_json = exact
    context.delivery.platform_capabilities_json = exact
    context.delivery.max_message_characters = 1
    context.resources.skills.add(name="skill")
    context.resources.files.add(file_id="file", name="file.txt", artifact_id="artifact")
    context.resources.knowledge_bases.add(knowledge_base_id="base", name="Base")
    context.resources.tools.add(name="tool", type="mcp", parameters_schema_json='{"type":"object"}')
    context.resources.platform_actions.append("message.send")
    for scope in ("conversation", "actor", "subject", "runner", "binding", "workspace"):
        getattr(context.state, f"{scope}_json")["key"] = exact
    context.state.truncated = True
    context.runtime.locale, context.runtime.time_zone = "zh_Hans", "Asia/Shanghai"
    context.runtime.attempt = 2
    context.metadata.update({f"key-{number}": "v" * 1024 for number in range(64)})


def add_unknown_fields(message: Message) -> None:
    """Adds a field from a later version to a message, and to each that is set in it."""
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for part in value if field.is_repeated else (value,):
            add_unknown_fields(part)
    message.MergeFromString(_UNKNOWN_FIELD)


def set_unknown_numbers(message: Message) -> None:
    """Gives every enum in what is set of a message a number from a later version."""
    for field in message.DESCRIPTOR.fields:
        if field.enum_type is not None:
            value: Any = _UNKNOWN_NUMBER
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for part in value if field.is_repeated else (value,):
            set_unknown_numbers(part)
