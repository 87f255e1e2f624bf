"""What the stand-in host hands a run: the event, its resources, and what it may call."""

import secrets
import uuid
from collections.abc import Mapping
from typing import Any

from runmesh.v1 import context_pb2, event_pb2, manifest_pb2
from runmesh.v1.manifest_pb2 import RunnerManifest

from runner_sdk._json import to_json
from runner_sdk._standin.conversation import CONVERSATION
from runner_sdk._standin.world import World
from runner_sdk.manifest import PROTOCOL_VERSION
from runner_sdk.results import StateScope, state_scope

_STATE_BYTES = 2 * 1024 * 1024


def new_context(
    manifest: RunnerManifest, *, host_id: str, event_type: str, config: Mapping[str, Any]
) -> context_pb2.RunContext:
    """Makes the context of a run on an event of one type, with no input yet."""
    context = context_pb2.RunContext(
        run_id=str(uuid.uuid4()),
        agent_id="agent",
        session_key="session",
        config_json=_config_json(manifest, config),
    )
    context.trigger.type = context.event.type = event_type
    context.trigger.source = context.event.source = event_pb2.EVENT_SOURCE_API
    context.trigger.time.GetCurrentTime()
    context.event.event_id = str(uuid.uuid4())
    context.conversation.conversation_id = CONVERSATION
    context.actor.type, context.actor.id = "user", "user"
    context.delivery.surface = "api"
    context.delivery.supports_streaming = True
    context.context.inline_policy.mode = context_pb2.INLINE_MODE_CURRENT_EVENT
    context.context.inline_policy.delivered_count = 1
    context.runtime.host_id = host_id
    context.runtime.host_version = "0"
    context.runtime.protocol_version = PROTOCOL_VERSION
    context.runtime.trace_id = secrets.token_hex(16)
    context.runtime.attempt = 1
    return context


def hand_over(
    context: context_pb2.RunContext,
    manifest: RunnerManifest,
    world: World,
    state_scopes: frozenset[int],
) -> None:
    """Fills in what a run may use of what the host has, as its manifest asks for it."""
    permissions, capabilities = manifest.permissions, manifest.capabilities
    resources = context.resources
    if permissions.models:
        resources.models.extend(world.models.resources)
    if capabilities.tool_calling and permissions.tools:
        resources.tools.extend(world.tools.resources)
    if capabilities.knowledge_retrieval and permissions.knowledge_bases:
        resources.knowledge_bases.extend(world.knowledge.resources)
    resources.storage.extend(permissions.storage)
    if capabilities.platform_api:
        resources.platform_actions.extend(permissions.platform_actions)
    access = context.context
    access.conversation_id = context.conversation.conversation_id
    access.thread_id = context.conversation.thread_id
    access.latest_cursor = world.history.latest_cursor
    access.has_history_before = bool(access.latest_cursor)
    access.available_apis.CopyFrom(_available(manifest, bool(state_scopes)))
    _fill_state(context.state, world, state_scopes)


def _fill_state(
    state: context_pb2.StateSnapshot, world: World, state_scopes: frozenset[int]
) -> None:
    """Fills in the state of the start, as much of it as fits."""
    left = _STATE_BYTES
    for scope in StateScope.__args__:  # type: ignore[attr-defined]
        number = state_scope(scope)
        if number not in state_scopes:
            continue
        values = getattr(state, f"{scope}_json")
        for key, value in world.state.texts(number).items():
            left -= len(key.encode()) + len(value.encode())
            if left < 0:
                state.truncated = True
                return
            values[key] = value


def _available(manifest: RunnerManifest, has_state: bool) -> context_pb2.AvailableApis:
    permissions = manifest.permissions
    return context_pb2.AvailableApis(
        history_page=manifest_pb2.HISTORY_PERMISSION_PAGE in permissions.history,
        history_search=manifest_pb2.HISTORY_PERMISSION_SEARCH in permissions.history,
        event_get=manifest_pb2.EVENT_PERMISSION_GET in permissions.events,
        event_page=manifest_pb2.EVENT_PERMISSION_PAGE in permissions.events,
        artifact_metadata=manifest_pb2.ARTIFACT_ACCESS_METADATA in permissions.artifacts,
        artifact_read=manifest_pb2.ARTIFACT_ACCESS_READ in permissions.artifacts,
        artifact_create=manifest_pb2.ARTIFACT_ACCESS_CREATE in permissions.artifacts,
        state=has_state,
        storage=bool(permissions.storage),
        prompt=True,
        steering=manifest.capabilities.steering,
    )


def _config_json(manifest: RunnerManifest, config: Mapping[str, Any]) -> str:
    """Returns a configuration with the manifest's defaults filled in; digits stay as written."""
    known = {entry.name for entry in manifest.config_schema}
    unknown = sorted(set(config) - known)
    if known and unknown:
        raise ValueError(f"config: {unknown[0]!r} is no field of {manifest.id}")
    entries = [
        f"{to_json(entry.name, field='name')}:{entry.default_json}"
        for entry in manifest.config_schema
        if entry.HasField("default_json") and entry.name not in config
    ]
    entries += [
        f"{to_json(name, field='name')}:{to_json(value, field=name)}"
        for name, value in config.items()
    ]
    return f"{{{','.join(entries)}}}"
