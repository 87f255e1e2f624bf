"""The host's types as the contract's messages, and back. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from runmesh.admin.v1 import actions_pb2, admin_pb2, attach_tokens_pb2
from runmesh.v1 import discovery_pb2, gateway_pb2, manifest_pb2, types_pb2

from host_service.agents.agent import DEFAULT_TIMEOUT_SECONDS, Agent, Scope
from host_service.agents.approval import ApprovalCondition, ApprovalRule
from host_service.agents.binding import SCOPE_FIELDS, Binding
from host_service.agents.changes import SECRET_JSON, Change
from host_service.authorization.callers import Role
from host_service.registry.instance import Instance
from host_service.registry.records import ManifestFault
from host_service.runs.context import duration
from stores.records import ApiKeyRecord, AttachTokenRecord, RunRecord, Usage

if TYPE_CHECKING:
    # Generated enums are of this type to mypy alone; at run time the type has another name.
    from google.protobuf.internal.enum_type_wrapper import _EnumTypeWrapper as Enum

Number = TypeVar("Number", bound=int)

# `results` has this number in DispatchResponse and in WatchRunResponse: field 2, length-delimited.
_RESULTS_TAG = b"\x12"


def timestamp(at: datetime) -> Timestamp:
    """Return a time as a protobuf timestamp."""
    message = Timestamp()
    message.FromDatetime(at)
    return message


def from_timestamp(message: Timestamp) -> datetime:
    """Return a protobuf timestamp as an aware time."""
    return message.ToDatetime(UTC)


def encode_results(batch: bytes) -> bytes:
    """Return a DispatchResponse or WatchRunResponse on the wire around an encoded ResultBatch.

    The batch goes into the response as it is: nothing is decoded, copied or encoded again for each
        reader.
    """
    return _RESULTS_TAG + _varint(len(batch)) + batch


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def run_message(record: RunRecord, *, duplicate: bool = False) -> gateway_pb2.Run:
    """Return a run as the contract has it."""
    run = gateway_pb2.Run(
        run_id=record.run_id,
        event_id=record.event_id,
        status=gateway_pb2.RunStatus.ValueType(int(record.status)),
        agent_id=record.agent_id,
        binding_id=record.binding_id or "",
        runner_id=record.runner_id,
        instance_id=record.instance_id or "",
        conversation_key=record.conversation_key,
        session_key=record.session_key,
        usage=[usage_message(usage) for usage in record.usage],
        warnings=[
            gateway_pb2.RunWarning(code=each.code, message=each.message, time=timestamp(each.at))
            for each in record.warnings
        ],
        last_sequence=record.last_sequence,
        duplicate=duplicate,
        steered_into=record.steered_into or "",
        replay_of=record.replay_of or "",
    )
    run.created_at.FromDatetime(record.created_at)
    for name in ("queued_at", "started_at", "first_delta_at", "ended_at", "deadline"):
        at = getattr(record, name)
        if at is not None:
            getattr(run, name).FromDatetime(at)
    if record.failure is not None:
        failure = record.failure
        run.failure.CopyFrom(
            gateway_pb2.RunFailure(
                code=failure.code,
                message=failure.message,
                retryable=failure.retryable,
                details=dict(failure.details),
            )
        )
    return run


def usage_message(usage: Usage) -> types_pb2.TokenUsage:
    """Return usage as the contract has it; what is unknown stays absent."""
    return types_pb2.TokenUsage(
        model_id=usage.model_id,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )


def agent_from_message(message: admin_pb2.Agent) -> Agent:
    """Return an agent whose fields were checked, with its defaults filled in."""
    resources, delivery = message.resources, message.delivery
    has_areas = message.HasField("resources") and resources.HasField("storage")
    has_scopes = message.HasField("state") and message.state.scopes
    defaults = Agent(id=message.id, runner_id=message.runner_id)
    return Agent(
        id=message.id,
        name=message.name or message.id,
        runner_id=message.runner_id,
        config_json=message.config_json or "{}",
        enabled=message.enabled if message.HasField("enabled") else True,
        timeout_seconds=(
            message.timeout.ToNanoseconds() / 1e9
            if message.HasField("timeout")
            else DEFAULT_TIMEOUT_SECONDS
        ),
        models=tuple(resources.models),
        tools=tuple(resources.tools),
        knowledge_bases=tuple(resources.knowledge_bases),
        skills=tuple(resources.skills.names) if resources.HasField("skills") else None,
        storage_areas=(
            enum_words(manifest_pb2.StorageArea, resources.storage.areas)
            if has_areas
            else defaults.storage_areas
        ),
        history_beyond_conversation=resources.history_beyond_conversation,
        actions=frozenset(resources.platform_actions),
        approval=enum_word(admin_pb2.ApprovalPolicy, resources.approval) or defaults.approval,
        approval_rules=tuple(map(_approval_rule, resources.approval_rules)),
        state_enabled=message.state.enabled if message.state.HasField("enabled") else True,
        state_scopes=(
            frozenset(map(Scope, enum_words(admin_pb2.StatePolicyScope, message.state.scopes)))
            if has_scopes
            else defaults.state_scopes
        ),
        streaming=delivery.streaming if delivery.HasField("streaming") else True,
        reply=delivery.reply if delivery.HasField("reply") else True,
        max_message_characters=(
            delivery.max_message_characters if delivery.HasField("max_message_characters") else None
        ),
        fallback_target=delivery.fallback_target,
        follow_up=enum_word(gateway_pb2.FollowUp, message.follow_up),
    )


def _approval_rule(message: actions_pb2.ApprovalRule) -> ApprovalRule:
    return ApprovalRule(
        message.action,
        tuple(ApprovalCondition(each.field, each.equals) for each in message.conditions),
        message.ask if message.HasField("ask") else True,
    )


def agent_message(agent: Agent, *, config_json: str) -> admin_pb2.Agent:
    """Return an agent as the contract has it, with a configuration that may be shown."""
    return admin_pb2.Agent(
        id=agent.id,
        name=agent.name,
        runner_id=agent.runner_id,
        config_json=config_json,
        enabled=agent.enabled,
        timeout=duration(agent.timeout_seconds),
        resources=admin_pb2.ResourcePolicy(
            models=agent.models,
            tools=agent.tools,
            knowledge_bases=agent.knowledge_bases,
            skills=admin_pb2.SkillSelection(names=agent.skills)
            if agent.skills is not None
            else None,
            storage=admin_pb2.StorageSelection(
                areas=[
                    enum_number(manifest_pb2.StorageArea, area)
                    for area in sorted(agent.storage_areas)
                ]
            ),
            history_beyond_conversation=agent.history_beyond_conversation,
            platform_actions=sorted(agent.actions),
            approval=enum_number(admin_pb2.ApprovalPolicy, agent.approval),
            approval_rules=[
                actions_pb2.ApprovalRule(
                    action=rule.action,
                    conditions=[
                        actions_pb2.ApprovalCondition(field=each.field, equals=each.equals)
                        for each in rule.conditions
                    ],
                    ask=rule.ask,
                )
                for rule in agent.approval_rules
            ],
        ),
        state=admin_pb2.StatePolicy(
            enabled=agent.state_enabled,
            scopes=[
                enum_number(admin_pb2.StatePolicyScope, scope)
                for scope in sorted(agent.state_scopes)
            ],
        ),
        delivery=admin_pb2.DeliveryPolicy(
            streaming=agent.streaming,
            reply=agent.reply,
            max_message_characters=agent.max_message_characters,
            fallback_target=agent.fallback_target,
        ),
        follow_up=enum_number(gateway_pb2.FollowUp, agent.follow_up),
        revision=agent.revision,
    )


def binding_from_message(message: admin_pb2.Binding) -> Binding:
    """Return a binding whose fields were checked."""
    scope = {name: value for name in SCOPE_FIELDS if (value := getattr(message.scope, name))}
    return Binding(
        id=message.id,
        agent_id=message.agent_id,
        scope=scope,
        event_types=tuple(message.event_types),
        filters=tuple((each.field, each.equals) for each in message.filters),
        enabled=message.enabled if message.HasField("enabled") else True,
    )


def binding_message(binding: Binding) -> admin_pb2.Binding:
    """Return a binding as the contract has it."""
    return admin_pb2.Binding(
        id=binding.id,
        agent_id=binding.agent_id,
        scope=admin_pb2.BindingScope(**binding.scope) if binding.scope else None,
        event_types=binding.event_types,
        filters=[
            admin_pb2.BindingFilter(field=path, equals=text) for path, text in binding.filters
        ],
        enabled=binding.enabled,
        revision=binding.revision,
    )


def change_message(change: Change, *, is_secret: Callable[[str], bool]) -> admin_pb2.Change:
    """Return a change as the contract has it; values of secret fields are not shown."""
    fields = []
    for path, before, after in change.fields:
        scope, _, rest = path.partition(".")
        if scope == "config" and is_secret(rest.partition(".")[0]):
            before, after = (SECRET_JSON if each is not None else None for each in (before, after))
        fields.append(admin_pb2.FieldChange(field=path, before_json=before, after_json=after))
    return admin_pb2.Change(
        object=change.object,
        id=change.id,
        kind=enum_number(admin_pb2.ChangeKind, change.kind),
        fields=fields,
    )


def key_message(record: ApiKeyRecord) -> admin_pb2.ApiKey:
    """Return an API key as the contract has it, without the key."""
    message = admin_pb2.ApiKey(
        key_id=record.key_id,
        name=record.name,
        role=enum_number(admin_pb2.Role, record.role),
        workspace_id=record.workspace,
        bot_id=record.bot,
        created_at=timestamp(record.created_at),
    )
    if record.expires_at is not None:
        message.expires_at.FromDatetime(record.expires_at)
    if record.revoked_at is not None:
        message.revoked_at.FromDatetime(record.revoked_at)
    return message


def attach_token_message(record: AttachTokenRecord) -> attach_tokens_pb2.AttachToken:
    """Return an attach token as the contract has it, without the token."""
    message = attach_tokens_pb2.AttachToken(
        token_id=record.token_id,
        plugin_id=record.plugin_id,
        created_at=timestamp(record.created_at),
        expires_at=timestamp(record.expires_at),
    )
    if record.revoked_at is not None:
        message.revoked_at.FromDatetime(record.revoked_at)
    if record.last_used_at is not None:
        message.last_used_at.FromDatetime(record.last_used_at)
    return message


def role_from(number: int) -> Role:
    """Return a role whose number was checked."""
    return Role(enum_word(admin_pb2.Role, number))


def instance_message(instance: Instance) -> discovery_pb2.RunnerInstance:
    """Return an instance as the contract has it."""
    return discovery_pb2.RunnerInstance(
        plugin_id=instance.plugin_id,
        instance_id=instance.instance_id,
        state=enum_number(discovery_pb2.InstanceState, instance.state),
        reason=instance.reason,
        found_by=instance.found_by,
        address=instance.address,
        plugin_version=instance.plugin_version,
        sdk=instance.sdk,
        active_runs=instance.active_runs,
        max_concurrent_runs=instance.max_concurrent_runs,
        runner_ids=sorted(instance.manifests),
        process_id=instance.process_id,
        restarts=instance.restarts,
        since=timestamp(instance.since),
        development=instance.development,
    )


def fault_messages(faults: Sequence[ManifestFault]) -> list[discovery_pb2.ManifestFault]:
    """Return faults of manifests as the contract has them."""
    return [
        discovery_pb2.ManifestFault(
            plugin_id=each.plugin_id, runner_id=each.runner_id, field=each.field, rule=each.rule
        )
        for each in faults
    ]


def enum_word(enum: Enum[Any], number: int) -> str:
    """Return the host's word for an enum value: `plugin` for STORAGE_AREA_PLUGIN.

    Empty for none, and for one of a later version, which means nothing here.
    """
    if number == 0 or number not in enum.values():
        return ""
    return enum.Name(number).removeprefix(_prefix(enum)).lower()


def enum_words(enum: Enum[Any], numbers: Iterable[int]) -> frozenset[str]:
    """Return the host's words for enum values, without those of a later version."""
    return frozenset(word for number in numbers if (word := enum_word(enum, number)))


def enum_number(enum: Enum[Number], word: str) -> Number:
    """Return the number of the enum value that the host has this word for; 0 for an empty one."""
    return enum.Value(_prefix(enum) + word.upper() if word else _prefix(enum) + "UNSPECIFIED")


def _prefix(enum: Enum[Any]) -> str:
    return str(enum.Name(0)).removesuffix("UNSPECIFIED")
