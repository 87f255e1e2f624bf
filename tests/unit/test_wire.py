"""Tests of `host_service.wire`: the host's types and the contract's messages say the same."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given, settings
from hypothesis import strategies as st
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import discovery_pb2, gateway_pb2, manifest_pb2

from host_service import wire
from host_service.agents.agent import Agent, Scope
from host_service.agents.approval import ApprovalCondition, ApprovalRule
from host_service.agents.binding import SCOPE_FIELDS, Binding
from host_service.agents.changes import Change
from host_service.authorization.callers import Role
from host_service.registry import (
    FoundBy,
    HostIdentity,
    InstanceState,
    Introduction,
    ManifestFault,
    Registry,
)
from host_service.validation import find_violations
from stores.records import ApiKeyRecord, Failure, RunRecord, RunStatus, RunWarning, Usage
from tests.unit.runs.samples import NOON, RUNNER, a_delta, a_result, an_agent

_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_names = st.lists(_texts, max_size=3).map(tuple)
_int64 = st.integers(0, 2**63 - 1)
_times = st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants them so
_agents = st.builds(
    Agent,
    id=_texts,
    runner_id=_texts,
    name=_texts.filter(bool),
    config_json=st.sampled_from(["{}", '{ "big": 9007199254740993 }']),
    enabled=st.booleans(),
    timeout_seconds=st.integers(0, 10**15).map(lambda nanoseconds: nanoseconds / 1e9),
    models=_names,
    tools=_names,
    knowledge_bases=_names,
    skills=st.none() | _names,
    storage_areas=st.frozensets(st.sampled_from(["plugin", "workspace", "binding"])),
    history_beyond_conversation=st.booleans(),
    actions=st.frozensets(_texts, max_size=3),
    approval=st.sampled_from(["never", "always", "by_rule"]),
    approval_rules=st.lists(
        st.builds(
            ApprovalRule,
            st.text(),
            st.lists(st.builds(ApprovalCondition, st.text(), st.text()), max_size=2).map(tuple),
            st.booleans(),
        ),
        max_size=3,
    ).map(tuple),
    state_enabled=st.booleans(),
    # No scopes at all are said by `enabled`: an empty list means the default ones.
    state_scopes=st.frozensets(st.sampled_from(Scope), min_size=1),
    streaming=st.booleans(),
    reply=st.booleans(),
    max_message_characters=st.none() | st.integers(0, 2**31 - 1),
    fallback_target=_texts,
    follow_up=st.sampled_from(["", "queue", "parallel", "steer", "interrupt", "reject"]),
    revision=_int64,
)


@given(_agents)
@settings(max_examples=60, deadline=None)
def test_agent_comes_back_from_its_message_as_it_was(agent: Agent) -> None:
    message = wire.agent_message(agent, config_json=agent.config_json)
    sent = admin_pb2.Agent.FromString(message.SerializeToString())
    assert wire.agent_from_message(sent) == agent
    assert sent.revision == agent.revision


def test_agent_that_says_nothing_has_the_contracts_defaults() -> None:
    agent = wire.agent_from_message(admin_pb2.Agent(id="a", runner_id=RUNNER))
    assert agent == an_agent(id="a", name="a")
    assert (agent.enabled, agent.timeout_seconds, agent.config_json) == (True, 300, "{}")
    assert agent.skills is None
    assert agent.storage_areas == {"plugin", "binding"}
    assert agent.state_scopes == {Scope.CONVERSATION, Scope.ACTOR}
    assert (agent.state_enabled, agent.streaming, agent.reply) == (True, True, True)
    assert (agent.approval, agent.follow_up) == ("always", "")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"enabled": False}, {"enabled": False}),
        ({"timeout": Duration()}, {"timeout_seconds": 0}),
        (
            {"resources": admin_pb2.ResourcePolicy(storage=admin_pb2.StorageSelection())},
            {"storage_areas": frozenset()},
        ),
        ({"resources": admin_pb2.ResourcePolicy()}, {}),
        (
            {"resources": admin_pb2.ResourcePolicy(skills=admin_pb2.SkillSelection())},
            {"skills": ()},
        ),
        ({"state": admin_pb2.StatePolicy(enabled=False)}, {"state_enabled": False}),
        ({"state": admin_pb2.StatePolicy()}, {}),
        ({"delivery": admin_pb2.DeliveryPolicy(streaming=False)}, {"streaming": False}),
        ({"delivery": admin_pb2.DeliveryPolicy()}, {}),
        (
            {"delivery": admin_pb2.DeliveryPolicy(max_message_characters=0)},
            {"max_message_characters": 0},
        ),
    ],
)
def test_what_is_said_to_be_nothing_differs_from_what_is_not_said(
    message: dict[str, Any], expected: dict[str, Any]
) -> None:
    agent = wire.agent_from_message(admin_pb2.Agent(id="a", runner_id=RUNNER, **message))
    assert agent == replace(an_agent(id="a", name="a"), **expected)


def test_values_of_a_later_version_are_left_out_of_an_agent() -> None:
    message = admin_pb2.Agent(
        id="a",
        runner_id=RUNNER,
        resources=admin_pb2.ResourcePolicy(
            storage=admin_pb2.StorageSelection(areas=[1, 99]),  # type: ignore[list-item]
            approval=99,  # type: ignore[arg-type]
        ),
        state=admin_pb2.StatePolicy(scopes=[1, 99]),  # type: ignore[list-item]
        follow_up=99,  # type: ignore[arg-type]
    )
    # The rules let them pass: a reader ignores what it does not know.
    assert find_violations(message) == []
    agent = wire.agent_from_message(message)
    assert agent.storage_areas == {"plugin"}
    assert agent.state_scopes == {Scope.CONVERSATION}
    assert (agent.approval, agent.follow_up) == ("always", "")


@given(
    st.builds(
        Binding,
        id=_texts,
        agent_id=_texts,
        scope=st.dictionaries(st.sampled_from(SCOPE_FIELDS), _texts.filter(bool)),
        event_types=_names,
        filters=st.lists(st.tuples(_texts, _texts), max_size=3).map(tuple),
        enabled=st.booleans(),
        revision=_int64,
    )
)
@settings(max_examples=60, deadline=None)
def test_binding_comes_back_from_its_message_as_it_was(binding: Binding) -> None:
    message = wire.binding_message(binding)
    sent = admin_pb2.Binding.FromString(message.SerializeToString())
    assert wire.binding_from_message(sent) == binding
    assert sent.revision == binding.revision


RUN = RunRecord(
    run_id="run-1",
    workspace="acme",
    bot="desk",
    event_source="api",
    event_id="event-1",
    agent_id="helper",
    agent_revision=1,
    runner_id=RUNNER,
    conversation_key="talk",
    session_key="session",
    created_at=NOON,
    host_id="host",
    host_incarnation="start",
    agent_snapshot=b"secret",
)


def test_run_says_what_is_known_of_it_and_nothing_else() -> None:
    run = wire.run_message(RUN)
    assert {field.name for field, _ in run.ListFields()} == {
        "run_id",
        "event_id",
        "status",
        "agent_id",
        "runner_id",
        "conversation_key",
        "session_key",
        "created_at",
    }
    assert run.created_at.ToDatetime(UTC) == NOON
    assert b"secret" not in run.SerializeToString()


def test_run_that_has_ended_says_all_of_it() -> None:
    times = {
        name: NOON + timedelta(seconds=number)
        for number, name in enumerate(
            ("queued_at", "started_at", "first_delta_at", "ended_at", "deadline"), start=1
        )
    }
    run = wire.run_message(
        replace(
            RUN,
            status=RunStatus.FAILED,
            binding_id="messages",
            instance_id="i",
            usage=(Usage("m", 0, None, cache_read_tokens=2**62),),
            failure=Failure("runner.error", "你", retryable=True, details={"a": "1"}),
            warnings=(RunWarning("sequence_gap", "w", NOON),),
            last_sequence=2**63 - 1,
            steered_into="run-0",
            replay_of="run-00",
            **times,  # type: ignore[arg-type]
        ),
        duplicate=True,
    )
    assert run.status == gateway_pb2.RUN_STATUS_FAILED
    assert (run.binding_id, run.instance_id, run.duplicate) == ("messages", "i", True)
    assert {name: getattr(run, name).ToDatetime(UTC) for name in times} == times
    (usage,) = run.usage
    assert [field.name for field, _ in usage.ListFields()] == [
        "model_id",
        "input_tokens",
        "cache_read_tokens",
    ]
    assert (usage.input_tokens, usage.cache_read_tokens) == (0, 2**62)
    assert run.failure == gateway_pb2.RunFailure(
        code="runner.error", message="你", retryable=True, details={"a": "1"}
    )
    assert [(each.code, each.message) for each in run.warnings] == [("sequence_gap", "w")]
    assert run.last_sequence == 2**63 - 1
    assert (run.steered_into, run.replay_of) == ("run-0", "run-00")


def test_every_status_of_the_ledger_is_the_contracts() -> None:
    names = {status.name for status in RunStatus}
    assert names == {name.removeprefix("RUN_STATUS_") for name in gateway_pb2.RunStatus.keys()[1:]}
    for status in RunStatus:
        run = wire.run_message(replace(RUN, status=status))
        assert gateway_pb2.RunStatus.Name(run.status) == f"RUN_STATUS_{status.name}"


@given(_times)
@settings(max_examples=60, deadline=None)
def test_times_come_back_to_the_microsecond(at: datetime) -> None:
    assert wire.from_timestamp(wire.timestamp(at)) == at


def test_time_of_another_zone_is_the_same_instant() -> None:
    shanghai = NOON.astimezone(timezone(timedelta(hours=8)))
    assert wire.from_timestamp(wire.timestamp(shanghai)) == NOON


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16383, 16384, 100_000])
def test_encoded_results_are_a_response_around_them(size: int) -> None:
    batch = gateway_pb2.ResultBatch(results=[a_result(1, message_delta=a_delta("x" * size))])
    encoded = wire.encode_results(batch.SerializeToString())
    for response in (gateway_pb2.DispatchResponse, gateway_pb2.WatchRunResponse):
        assert response.FromString(encoded).results == batch
        assert response.FromString(encoded).WhichOneof("item") == "results"


@pytest.mark.parametrize(
    ("path", "is_shown"),
    [
        ("config.api_key", False),
        ("config.api_key.inner", False),
        ("config.other", True),
        ("config.other.api_key", True),
        ("api_key", True),
        ("name", True),
    ],
)
def test_value_of_a_secret_field_is_not_shown(path: str, *, is_shown: bool) -> None:
    change = Change("agent", "helper", "updated", ((path, '"canary"', None),))
    message = wire.change_message(change, is_secret={"api_key"}.__contains__)
    (field,) = message.fields
    assert field.field == path
    assert ("canary" in str(message)) is is_shown
    assert field.HasField("before_json")
    assert not field.HasField("after_json")
    assert message.kind == admin_pb2.CHANGE_KIND_UPDATED


@pytest.mark.parametrize("kind", ["created", "updated", "unchanged"])
def test_kind_of_a_change_is_the_contracts(kind: str) -> None:
    message = wire.change_message(Change("binding", "b", kind), is_secret=lambda _name: False)
    assert admin_pb2.ChangeKind.Name(message.kind) == f"CHANGE_KIND_{kind.upper()}"


def test_key_is_told_without_its_hash() -> None:
    record = ApiKeyRecord(
        key_id="k", name="laptop", hash=b"canary", role="viewer", created_at=NOON, workspace=""
    )
    message = wire.key_message(record)
    assert (message.key_id, message.role) == ("k", admin_pb2.ROLE_VIEWER)
    # The one default workspace is a limit, too; no limit is none.
    assert message.HasField("workspace_id")
    assert not message.HasField("bot_id")
    assert not message.HasField("expires_at")
    assert b"canary" not in message.SerializeToString()
    ended = replace(record, expires_at=NOON, revoked_at=NOON + timedelta(days=1))
    assert wire.key_message(ended).expires_at.ToDatetime(UTC) == NOON
    assert wire.key_message(ended).revoked_at.ToDatetime(UTC) == NOON + timedelta(days=1)


def test_every_role_is_the_contracts() -> None:
    for number in admin_pb2.Role.values():
        if number:
            assert wire.enum_number(admin_pb2.Role, wire.role_from(number)) == number
    assert len(Role) == len(admin_pb2.Role.values()) - 1


async def test_instance_is_told_as_the_registry_knows_it() -> None:
    registry = Registry(identity=HostIdentity("host", "Host", "0"))
    instance = registry.add(plugin_id="acme/desk", found_by=FoundBy.STATIC, address="unix:/nowhere")
    starting = wire.instance_message(instance)
    assert starting.state == discovery_pb2.INSTANCE_STATE_STARTING
    manifests = {RUNNER: manifest_pb2.RunnerManifest(id=RUNNER)}
    instance.introduce(Introduction("i", "1.4", "sdk python 0.1", 7, manifests))
    registry.mark(instance, InstanceState.SERVING)
    instance.acquire()
    message = wire.instance_message(instance)
    assert (message.plugin_id, message.instance_id) == ("acme/desk", "i")
    assert message.state == discovery_pb2.INSTANCE_STATE_SERVING
    assert (message.found_by, message.address) == ("static", "unix:/nowhere")
    assert (message.plugin_version, message.sdk) == ("1.4", "sdk python 0.1")
    assert (message.active_runs, message.max_concurrent_runs) == (1, 7)
    assert list(message.runner_ids) == [RUNNER]
    assert instance.instance_token not in str(message)
    instance.release()
    await registry.close()


def test_every_state_of_an_instance_is_the_contracts() -> None:
    numbers = {wire.enum_number(discovery_pb2.InstanceState, state) for state in InstanceState}
    assert numbers == set(discovery_pb2.InstanceState.values()) - {0}


def test_faults_of_manifests_are_told_by_field_and_rule() -> None:
    (message,) = wire.fault_messages([ManifestFault("acme/desk", RUNNER, "version", "required")])
    assert (message.plugin_id, message.runner_id) == ("acme/desk", RUNNER)
    assert (message.field, message.rule) == ("version", "required")


def test_words_of_enums_are_their_names_without_the_prefix() -> None:
    area = manifest_pb2.StorageArea
    assert wire.enum_word(area, manifest_pb2.STORAGE_AREA_PLUGIN) == "plugin"
    assert wire.enum_word(area, 0) == ""
    assert wire.enum_number(area, "workspace") == manifest_pb2.STORAGE_AREA_WORKSPACE
    assert wire.enum_number(area, "") == 0
    # One of a later version means nothing here.
    assert wire.enum_word(area, 99) == ""
