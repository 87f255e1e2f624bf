"""What the catalogue holds, and declared keys, as messages, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.message import Message
from runmesh.admin.v1 import admin_pb2, models_pb2
from runmesh.v1 import context_pb2, manifest_pb2

from host_service.authorization.callers import Role
from host_service.authorization.declared_keys import DeclaredKey
from host_service.authorization.policy import Allowance, WorkspacePolicy
from host_service.catalogue.knowledge_base import (
    DEFAULT_CHUNK_CHARACTERS,
    DEFAULT_KIND,
    DEFAULT_OVERLAP_CHARACTERS,
    KnowledgeBase,
)
from host_service.catalogue.model import Model
from host_service.catalogue.plugin_settings import PluginSettings
from host_service.catalogue.tool_server import ToolServer
from host_service.runs.context import duration
from host_service.wire import enum_number, enum_word, enum_words
from stores.retention import RetentionPolicy
from stores.secrets import Secret, SecretChange, SecretOwner


def model_from_message(message: admin_pb2.Model) -> Model:
    """Return a model whose fields were checked."""
    return Model(
        id=message.id,
        name=message.name or message.id,
        kind=enum_word(context_pb2.ModelKind, message.kind),
        provider=message.provider,
        model_name=message.model_name,
        base_url=message.base_url,
        context_window_tokens=_present(message, "context_window_tokens"),
        abilities=tuple(sorted(enum_words(context_pb2.ModelAbility, message.abilities))),
        max_concurrency=message.max_concurrency,
        requests_per_minute=message.requests_per_minute,
        options_json=message.options_json or "{}",
        enabled=_true_unless_said(message),
    )


def model_message(model: Model, *, has_api_key: bool) -> admin_pb2.Model:
    """Return a model as the contract has it, without its API key."""
    return admin_pb2.Model(
        id=model.id,
        name=model.name,
        kind=enum_number(context_pb2.ModelKind, model.kind),
        provider=model.provider,
        model_name=model.model_name,
        base_url=model.base_url,
        has_api_key=has_api_key,
        context_window_tokens=model.context_window_tokens,
        abilities=[enum_number(context_pb2.ModelAbility, each) for each in model.abilities],
        max_concurrency=model.max_concurrency,
        requests_per_minute=model.requests_per_minute,
        options_json=model.options_json,
        enabled=model.enabled,
        revision=model.revision,
        origin=enum_number(models_pb2.ModelOrigin, model.origin),
    )


def secrets_of_model(message: admin_pb2.Model) -> list[SecretChange]:
    """Return what a message says of a model's API key."""
    if not message.HasField("api_key"):
        return []
    owner = SecretOwner(Model.KIND, message.id)
    secret = Secret(message.api_key) if message.api_key else None
    return [SecretChange(owner, Model.API_KEY, secret)]


def tool_server_from_message(message: admin_pb2.ToolServer) -> ToolServer:
    """Return a tool server whose fields were checked."""
    tools = message.enabled_tools
    return ToolServer(
        id=message.id,
        name=message.name or message.id,
        command=message.command.command,
        args=tuple(message.command.args),
        env=tuple(each.name for each in message.command.env),
        url=message.http.url,
        headers=tuple(each.name for each in message.http.headers),
        enabled_tools=tuple(tools.names) if message.HasField("enabled_tools") else None,
        enabled=_true_unless_said(message),
    )


def tool_server_message(server: ToolServer) -> admin_pb2.ToolServer:
    """Return a tool server as the contract has it, without the values of its secrets."""
    message = admin_pb2.ToolServer(
        id=server.id,
        name=server.name,
        enabled_tools=None
        if server.enabled_tools is None
        else admin_pb2.ToolSelection(names=server.enabled_tools),
        enabled=server.enabled,
        revision=server.revision,
    )
    if server.url:
        message.http.CopyFrom(
            admin_pb2.ToolAddress(url=server.url, headers=_entries(server.headers))
        )
    else:
        message.command.CopyFrom(
            admin_pb2.ToolCommand(
                command=server.command, args=server.args, env=_entries(server.env)
            )
        )
    return message


def secrets_of_tool_server(message: admin_pb2.ToolServer) -> list[SecretChange]:
    """Return what a message says of a tool server's variables and headers."""
    owner = SecretOwner(ToolServer.KIND, message.id)
    return [
        SecretChange(owner, f"{place}.{each.name}", Secret(each.value))
        for place, entries in (("env", message.command.env), ("headers", message.http.headers))
        for each in entries
        if each.HasField("value")
    ]


def knowledge_base_from_message(message: admin_pb2.KnowledgeBase) -> KnowledgeBase:
    """Return a knowledge base whose fields were checked."""
    characters = message.chunking.characters or DEFAULT_CHUNK_CHARACTERS
    overlap = _present(message.chunking, "overlap_characters")
    if overlap is None:
        overlap = min(DEFAULT_OVERLAP_CHARACTERS, characters // 10)
    return KnowledgeBase(
        id=message.id,
        name=message.name or message.id,
        kind=message.kind or DEFAULT_KIND,
        description=message.description,
        embedding_model=message.embedding_model,
        chunk_characters=characters,
        overlap_characters=overlap,
        enabled=_true_unless_said(message),
    )


def knowledge_base_message(base: KnowledgeBase) -> admin_pb2.KnowledgeBase:
    """Return a knowledge base as the contract has it."""
    return admin_pb2.KnowledgeBase(
        id=base.id,
        name=base.name,
        kind=base.kind,
        description=base.description,
        embedding_model=base.embedding_model,
        chunking=admin_pb2.Chunking(
            characters=base.chunk_characters, overlap_characters=base.overlap_characters
        ),
        enabled=base.enabled,
        revision=base.revision,
    )


def policy_from_message(
    message: admin_pb2.Policy, *, retention: RetentionPolicy | None
) -> WorkspacePolicy:
    """Return a policy whose fields were checked.

    Args:
        message: The policy.
        retention: What the workspace has now, which stays unless the message says otherwise.

    Raises:
        InvalidRecord: Its retention cannot be.
    """
    if message.HasField("retention"):
        retention = _retention(message.retention)
    return WorkspacePolicy(
        id=message.workspace_id,
        allowance=_allowance(message.allowance),
        bots=_named(message.bots),
        actors=_named(message.actors),
        instructions=message.instructions,
        retention=retention,
        enabled=_true_unless_said(message),
    )


def policy_message(policy: WorkspacePolicy) -> admin_pb2.Policy:
    """Return a policy as the contract has it."""
    return admin_pb2.Policy(
        workspace_id=policy.id,
        allowance=_allowance_message(policy.allowance),
        bots=_named_messages(policy.bots),
        actors=_named_messages(policy.actors),
        instructions=policy.instructions,
        retention=None if policy.retention is None else _retention_message(policy.retention),
        enabled=policy.enabled,
        revision=policy.revision,
    )


def plugin_settings_from_message(message: admin_pb2.PluginSettings) -> PluginSettings:
    """Return what is set for a plugin, of a message whose fields were checked."""
    return PluginSettings(
        id=message.plugin_id,
        settings_json=message.settings_json or "{}",
        secrets=tuple(sorted(each.name for each in message.secrets)),
        enabled=_true_unless_said(message),
    )


def plugin_settings_message(settings: PluginSettings) -> admin_pb2.PluginSettings:
    """Return what is set for a plugin as the contract has it, without the values of secrets."""
    return admin_pb2.PluginSettings(
        plugin_id=settings.id,
        enabled=settings.enabled,
        settings_json=settings.settings_json,
        secrets=_entries(settings.secrets),
        revision=settings.revision,
    )


def secrets_of_plugin(message: admin_pb2.PluginSettings) -> list[SecretChange]:
    """Return what a message says of a plugin's secret settings."""
    owner = SecretOwner(PluginSettings.KIND, message.plugin_id)
    return [
        SecretChange(owner, PluginSettings.secret_name(each.name), Secret(each.value))
        for each in message.secrets
        if each.HasField("value")
    ]


def key_from_message(message: admin_pb2.DeclaredKey) -> DeclaredKey:
    """Return a declared key whose fields were checked."""
    return DeclaredKey(
        name=message.name,
        role=Role(enum_word(admin_pb2.Role, message.role)),
        secret=Secret(message.secret),
        workspace=_present(message, "workspace_id"),
        bot=_present(message, "bot_id"),
    )


def _allowance(message: admin_pb2.Allowance) -> Allowance:
    def names(field: str) -> frozenset[str] | None:
        return frozenset(getattr(message, field).names) if message.HasField(field) else None  # type: ignore[arg-type]

    return Allowance(
        models=names("models"),
        tools=names("tools"),
        knowledge_bases=names("knowledge_bases"),
        storage_areas=enum_words(manifest_pb2.StorageArea, message.storage.areas)
        if message.HasField("storage")
        else None,
        actions=names("platform_actions"),
        state_scopes=enum_words(admin_pb2.StatePolicyScope, message.state_scopes.scopes)
        if message.HasField("state_scopes")
        else None,
        history_beyond_conversation=message.history_beyond_conversation
        if message.HasField("history_beyond_conversation")
        else True,
    )


def _allowance_message(allowance: Allowance) -> admin_pb2.Allowance:
    def names(chosen: frozenset[str] | None) -> admin_pb2.NameSelection | None:
        return None if chosen is None else admin_pb2.NameSelection(names=sorted(chosen))

    areas, scopes = allowance.storage_areas, allowance.state_scopes
    return admin_pb2.Allowance(
        models=names(allowance.models),
        tools=names(allowance.tools),
        knowledge_bases=names(allowance.knowledge_bases),
        storage=None
        if areas is None
        else admin_pb2.StorageSelection(
            areas=[enum_number(manifest_pb2.StorageArea, each) for each in sorted(areas)]
        ),
        platform_actions=names(allowance.actions),
        state_scopes=None
        if scopes is None
        else admin_pb2.ScopeSelection(
            scopes=[enum_number(admin_pb2.StatePolicyScope, each) for each in sorted(scopes)]
        ),
        history_beyond_conversation=allowance.history_beyond_conversation,
    )


def _named(messages: Iterable[admin_pb2.AllowanceOf]) -> tuple[tuple[str, Allowance], ...]:
    return tuple(sorted((each.id, _allowance(each.allowance)) for each in messages))


def _named_messages(
    named: Sequence[tuple[str, Allowance]],
) -> list[admin_pb2.AllowanceOf]:
    return [
        admin_pb2.AllowanceOf(id=name, allowance=_allowance_message(allowance))
        for name, allowance in named
    ]


def _retention(message: admin_pb2.RetentionPolicy) -> RetentionPolicy:
    return RetentionPolicy(
        max_age_seconds=round(message.max_age.ToTimedelta().total_seconds())
        if message.HasField("max_age")
        else None,
        max_items_per_conversation=message.max_items_per_conversation or None,
    )


def _retention_message(retention: RetentionPolicy) -> admin_pb2.RetentionPolicy:
    age = retention.max_age_seconds
    return admin_pb2.RetentionPolicy(
        max_age=None if age is None else duration(age),
        max_items_per_conversation=retention.max_items_per_conversation or 0,
    )


def _entries(names: Iterable[str]) -> list[admin_pb2.SecretEntry]:
    return [admin_pb2.SecretEntry(name=name) for name in names]


def _true_unless_said(message: Message) -> bool:
    return message.enabled if message.HasField("enabled") else True  # type: ignore[attr-defined]


def _present(message: Message, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None
