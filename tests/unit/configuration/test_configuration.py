"""Configuration files become what the admin contract has, or a list of faults with their lines."""

import json
from pathlib import Path

import pytest
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import gateway_pb2, manifest_pb2

from host_service.configuration import (
    Configuration,
    ConfigurationError,
    load_configuration,
    read_configuration,
)

SECTIONS = (
    "models, tool_servers, knowledge_bases, policies, plugins, agents, bindings, keys, webhooks, "
    "limits"
)
AGENT = "agents:\n- id: support\n  runner_id: plugin:acme/helpdesk/default\n"


def read(text: str) -> Configuration:
    return read_configuration(text.encode(), source="mesh.yaml")


def faults(text: str | bytes) -> list[str]:
    content = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(ConfigurationError) as refused:
        read_configuration(content, source="mesh.yaml")
    return [str(fault) for fault in refused.value.faults]


def config_of(yaml_text: str) -> str:
    return read(f"{AGENT}  config: {yaml_text}\n").request().agents[0].config_json


def test_an_agent_with_every_field_is_read() -> None:
    agent = (
        read(
            AGENT
            + """
  name: Help desk
  enabled: false
  timeout: 1h30m
  follow_up: queue
  config: {model: small}
  resources:
    models: [a, b]
    tools: [search]
    knowledge_bases: [handbook]
    skills: {names: []}
    storage: {areas: [plugin, STORAGE_AREA_BINDING]}
    history_beyond_conversation: true
    platform_actions: [message.send]
    approval: by_rule
  state: {enabled: true, scopes: [actor, conversation]}
  delivery: {streaming: false, reply: true, max_message_characters: 4000, fallback_target: log}
"""
        )
        .request()
        .agents[0]
    )

    expected = admin_pb2.Agent(
        id="support",
        runner_id="plugin:acme/helpdesk/default",
        name="Help desk",
        enabled=False,
        follow_up=gateway_pb2.FOLLOW_UP_QUEUE,
        config_json='{"model": "small"}',
        resources=admin_pb2.ResourcePolicy(
            models=["a", "b"],
            tools=["search"],
            knowledge_bases=["handbook"],
            skills=admin_pb2.SkillSelection(),
            storage=admin_pb2.StorageSelection(
                areas=[manifest_pb2.STORAGE_AREA_PLUGIN, manifest_pb2.STORAGE_AREA_BINDING]
            ),
            history_beyond_conversation=True,
            platform_actions=["message.send"],
            approval=admin_pb2.APPROVAL_POLICY_BY_RULE,
        ),
        state=admin_pb2.StatePolicy(
            enabled=True,
            scopes=[
                admin_pb2.STATE_POLICY_SCOPE_ACTOR,
                admin_pb2.STATE_POLICY_SCOPE_CONVERSATION,
            ],
        ),
        delivery=admin_pb2.DeliveryPolicy(
            streaming=False, reply=True, max_message_characters=4000, fallback_target="log"
        ),
    )
    expected.timeout.FromSeconds(5400)
    assert agent == expected


def test_a_binding_with_every_field_is_read() -> None:
    binding = (
        read(
            """
bindings:
- id: night
  agent_id: support
  event_types: [message.received, "friend.*"]
  enabled: true
  scope: {workspace_id: w, bot_id: "12", conversation_id: c, thread_id: t, actor_id: a}
  filters:
  - {field: actor.type, equals: user}
"""
        )
        .request()
        .bindings[0]
    )

    assert binding == admin_pb2.Binding(
        id="night",
        agent_id="support",
        event_types=["message.received", "friend.*"],
        enabled=True,
        scope=admin_pb2.BindingScope(
            workspace_id="w", bot_id="12", conversation_id="c", thread_id="t", actor_id="a"
        ),
        filters=[admin_pb2.BindingFilter(field="actor.type", equals="user")],
    )


def test_a_policy_that_is_there_and_empty_is_not_the_same_as_none() -> None:
    agent = read(AGENT + "  resources: {skills: {}}\n").request().agents[0]
    assert agent.resources.HasField("skills")
    assert not agent.resources.HasField("storage")
    assert not agent.HasField("state")


def test_no_deadline_can_be_said_and_differs_from_saying_nothing() -> None:
    assert read(AGENT + "  timeout_seconds: 0\n").request().agents[0].HasField("timeout")
    assert not read(AGENT).request().agents[0].HasField("timeout")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("timeout: 300s", 300), ("timeout: 500ms", 0.5), ("timeout_seconds: 2.5", 2.5)],
)
def test_a_timeout_is_a_duration_or_a_number_of_seconds(text: str, seconds: float) -> None:
    timeout = read(f"{AGENT}  {text}\n").request().agents[0].timeout
    assert timeout.ToTimedelta().total_seconds() == seconds


@pytest.mark.parametrize(
    ("yaml_text", "expected"),
    [
        ("{chat: 9007199254740993}", '{"chat": 9007199254740993}'),
        ("{n: 123456789012345678901234567890}", '{"n": 123456789012345678901234567890}'),
        ("{n: +7, m: -0}", '{"n": 7, "m": -0}'),
        ("{f: 1.0, g: 0.10}", '{"f": 1.0, "g": 0.10}'),
        ("{t: true, n: null, e: , d: ~}", '{"t": true, "n": null, "e": null, "d": null}'),
        ('{q: "12", s: plain text}', '{"q": "12", "s": "plain text"}'),
        ("{a: [1, [], {}]}", '{"a": [1, [], {}]}'),
        ("{世界: 👩‍👩‍👧}", '{"世界": "👩‍👩‍👧"}'),
        ('{pair: "\\ud83d\\ude00"}', '{"pair": "😀"}'),
        ('{quote: "a\\"b\\\\c\\n"}', '{"quote": "a\\"b\\\\c\\n"}'),
    ],
)
def test_configuration_keeps_every_digit_and_character(yaml_text: str, expected: str) -> None:
    assert config_of(yaml_text) == expected
    json.loads(expected)


def test_an_alias_means_what_its_anchor_means() -> None:
    text = "agents:\n" + "".join(
        f"- id: {name}\n  runner_id: plugin:a/b/c\n  config: {config}\n"
        for name, config in (("one", "&shared {x: 1}"), ("two", "*shared"))
    )
    assert [agent.config_json for agent in read(text).request().agents] == ['{"x": 1}', '{"x": 1}']


def test_limits_keep_whole_numbers_whole() -> None:
    limits = read("limits: {active_runs: 64, interrupt_grace_seconds: 2.5}\n").limits
    assert limits == {"active_runs": 64, "interrupt_grace_seconds": 2.5}
    assert isinstance(limits["active_runs"], int)


def test_sections_without_content_declare_nothing() -> None:
    assert read("agents:\nbindings: []\n").request() == admin_pb2.ApplyRequest()


def test_a_byte_order_mark_is_no_content() -> None:
    assert read_configuration(b"\xef\xbb\xbf" + AGENT.encode(), source="mesh.yaml").request().agents


def test_every_fault_is_told_at_once_in_the_order_of_the_lines() -> None:
    told = faults(
        """\
agent: []
agents:
- id: 12
  runner_di: plugin:a/b/c
  timeout: 300
  follow_up: qeue
  delivery: {streaming: "true"}
bindings:
- id: b
"""
    )
    assert told == [
        "mesh.yaml:1: agent: is not known; did you mean agents?",
        'mesh.yaml:3: agents[0].id: must be a text; got a number: quote it: "12"',
        "mesh.yaml:3: agents[0].runner_id: is required and missing",
        "mesh.yaml:4: agents[0].runner_di: is not known; did you mean runner_id?",
        (
            "mesh.yaml:5: agents[0].timeout: must be a number with a unit, such as 500ms, 300s, "
            "5m, 1h30m or 90d, or be called timeout_seconds; got '300'"
        ),
        (
            "mesh.yaml:6: agents[0].follow_up: must be one of queue, parallel, steer, interrupt, "
            "reject; got 'qeue'"
        ),
        "mesh.yaml:7: agents[0].delivery.streaming: must be true or false; got a text",
        "mesh.yaml:9: bindings[0].agent_id: is required and missing",
        "mesh.yaml:9: bindings[0].event_types: is required and missing",
    ]


@pytest.mark.parametrize(
    ("yaml_text", "fault"),
    [
        ("{d: 2025-11-30}", 'YAML reads 2025-11-30 as a date: write "2025-11-30" to keep the text'),
        ("{b: no}", 'YAML may read no as false: write false, or "no"'),
        ("{o: 0123}", "YAML versions read 0123 differently"),
        ("{s: 12:30}", "YAML versions read 12:30 differently"),
        ("{u: 1_000}", "YAML versions read 1_000 differently"),
        ("{e: 1e5}", "1e5 is a number to some YAML readers and a text to others"),
        ("{i: .inf}", ".inf is a number that JSON does not have"),
        ("{i: .NaN}", ".NaN is a number that JSON does not have"),
        ("{i: 1.0e+400}", "larger than any number"),
        ('{z: "a\\0b"}', "U+0000"),
        ('{z: "\\ud83d"}', "half of a surrogate pair"),
        ("{t: !secret x}", "the tag !secret"),
        ("{t: !!python/name:os.system x}", "the tag !!python/name:os.system"),
        ("{1: x}", 'a name must be a text; got 1: quote it: "1"'),
        ("{on: x}", 'a name must be a text; got on: quote it: "on"'),
        ("{[a]: x}", "a name must be a text; got a list"),
        ("{<<: {a: 1}}", "merge keys"),
        ("{a: 1, a: 2}", "is there twice; first on line 4"),
        ("[1]", "must be a mapping of names to values; got a list"),
        ("text", "must be a mapping of names to values; got a single value"),
    ],
)
def test_what_yaml_does_not_say_clearly_is_refused(yaml_text: str, fault: str) -> None:
    told = faults(f"{AGENT}  config: {yaml_text}\n")
    assert len(told) == 1
    assert told[0].startswith("mesh.yaml:4: agents[0].config")
    assert fault in told[0]


def test_a_name_that_the_host_sets_is_refused() -> None:
    assert faults(AGENT + "  revision: 3\n") == [
        "mesh.yaml:4: agents[0].revision: is set by the host: leave it out"
    ]


def test_a_timeout_is_said_once() -> None:
    assert faults(AGENT + "  timeout: 1s\n  timeout_seconds: 1\n") == [
        (
            "mesh.yaml:5: agents[0].timeout_seconds: "
            "says again what the entry above says: leave one out"
        )
    ]


def test_two_agents_with_one_id_are_refused() -> None:
    assert faults(AGENT + AGENT.removeprefix("agents:\n")) == [
        "mesh.yaml:4: agents[1].id: 'support' is also agents[0]"
    ]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", f"mesh.yaml: declares nothing; it may have {SECTIONS}"),
        (b"# only words\n", f"mesh.yaml: declares nothing; it may have {SECTIONS}"),
        (b"- a\n", "mesh.yaml:1: must be a mapping of names to values; got a list"),
        (b"a: [", ("mesh.yaml:1: not YAML: while parsing a flow node, expected the node content, "
         "but found '<stream end>'")),
        (b"a: 1\n---\nb: 2\n", ("mesh.yaml:2: not YAML: expected a single document in the stream, "
         "but found another document")),
        (b"ok: 1\nx: \xff\n", "mesh.yaml:2: is not UTF-8: byte 0xff"),
        (b"a: 1\nb: x\x00y\n", "mesh.yaml:2: not YAML: it has the character U+0000"),
        (b"[" * 5000, "mesh.yaml: nested too deep to be read"),
    ],
)  # fmt: skip
def test_what_is_no_document_is_one_fault(content: bytes, fault: str) -> None:
    assert faults(content) == [fault]


def test_a_value_that_contains_itself_is_refused() -> None:
    told = faults(AGENT + "  config: &loop {again: *loop}\n")
    assert len(told) == 1
    assert "nested more than 64 deep" in told[0]


def test_a_small_file_cannot_mean_a_huge_value() -> None:
    levels = "".join(f"    a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    told = faults(f"{AGENT}  config:\n    a0: &a0 [x]\n{levels}")
    assert len(told) == 1
    assert "more than 200000 values" in told[0]


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    missing = tmp_path / "mesh.yaml"
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_configuration(missing)


def test_a_path_of_the_contract_leads_to_its_line() -> None:
    configuration = read(AGENT + "  config:\n    model: small\n")
    for path, place in (
        ("agents[0].config_json", "mesh.yaml:4"),
        ("agents[0].config.model", "mesh.yaml:5"),
        ("agents[0].delivery.reply", "mesh.yaml:2"),
        ("elsewhere", "mesh.yaml"),
    ):
        assert str(configuration.fault(path, "is odd")) == f"{place}: {path}: is odd"
