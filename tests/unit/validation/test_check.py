"""A message that keeps the rules passes; of one that does not, every fault is told by its path."""

import subprocess
import sys
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import (
    attach_pb2,
    discovery_pb2,
    event_pb2,
    gateway_pb2,
    host_api_pb2,
    manifest_pb2,
    result_pb2,
    run_pb2,
    types_pb2,
)

from host_service.validation import Validator, Violation, find_violations

_MIB = 1024 * 1024
_NOTHING = "the end of the text where a value should be"
_METADATA = "up to 64 entries, keys of 1 to 128 bytes, values of up to 1024 bytes"


def _event() -> event_pb2.EventEnvelope:
    return event_pb2.EventEnvelope(
        event_id="evt-1",
        type="message.received",
        time=Timestamp(seconds=1767225599),
        conversation_id="明天下午三点",
        actor=event_pb2.Actor(type="user", id="u-1", name="Ann", metadata={"a": "b"}),
        subject=event_pb2.Subject(type="message", data_json="null"),
        input=event_pb2.EventInput(text="Hello", parts=[types_pb2.ContentPart(text="Hello")]),
        delivery=event_pb2.DeliveryContext(surface="console", reply_target_json='{"id":1}'),
        data_json="[]",
        metadata={"k": ""},
    )


def _manifest() -> manifest_pb2.RunnerManifest:
    label = types_pb2.LocalizedText(text={"en_US": "Echo"})
    return manifest_pb2.RunnerManifest(
        id="plugin:acme/echo/default",
        name="default",
        label=label,
        protocol_version="1",
        version="1.0.0",
        config_schema=[manifest_pb2.ConfigField(name="prefix", type="string", label=label)],
    )


def _told(message: Any) -> list[str]:
    return [str(violation) for violation in find_violations(message)]


def test_sound_request_passes() -> None:
    assert find_violations(gateway_pb2.DispatchRequest(event=_event(), agent_id="default")) == []
    assert find_violations(_manifest()) == []


def test_request_of_nothing_passes_where_nothing_is_required() -> None:
    assert find_violations(gateway_pb2.ListRunsRequest()) == []
    assert find_violations(host_api_pb2.GetPromptRequest()) == []


def test_all_faults_are_told_at_once_with_path_and_shape_and_never_with_content() -> None:
    event = _event()
    event.event_id = "x" * 300
    event.type = "message received"
    event.actor.id = "é" * 128
    event.actor.name = "a\0secret"
    event.input.parts.add()
    event.input.parts.add(inline=types_pb2.InlineContent(data=b"x" * (_MIB + 1)))
    event.delivery.reply_target_json = '{"chat":1,"chat":"secret"}'
    event.data_json = ""
    event.metadata["x" * 129] = "secret"
    assert _told(gateway_pb2.DispatchRequest(event=event, agent_id="x" * 256)) == [
        "agent_id: up to 255 bytes; got string of 256 bytes",
        "event.event_id: up to 255 bytes; got string of 300 bytes",
        r'event.type: matching `[a-z0-9_]+(\.[a-z0-9_]+)+`; got "message received"',
        "event.actor.id: up to 255 bytes; got string of 256 bytes",
        "event.input.parts[1].content: required; got not set",
        "event.input.parts[2].inline.mime_type: required; got not set",
        "event.input.parts[2].inline.data: at most 1 MiB; got 1048577 bytes",
        "event.delivery.reply_target_json: a JSON value; got a duplicate name at line 1, column 11",
        f"event.data_json: a JSON value; got {_NOTHING} at line 1, column 1",
        f"event.metadata: {_METADATA}; got a key of 129 bytes",
        "event.actor.name: free of U+0000; got U+0000 at character 2",
    ]


def test_zero_in_a_text_that_may_be_malformed_json_is_told() -> None:
    call = types_pb2.ToolCall(id="1", name="t", arguments_json='{"a":"\0"}')
    assert _told(call) == ["arguments_json: free of U+0000; got U+0000 at character 7"]


def test_path_of_the_message_itself_is_put_in_front() -> None:
    [violation] = find_violations(event_pb2.Actor(id="u-1"), path="event.actor")
    assert violation == Violation("event.actor.type", "required", "not set")


def test_no_more_than_twenty_faults_are_told() -> None:
    event = _event()
    for _ in range(1000):
        event.input.parts.add()
    told = find_violations(gateway_pb2.DispatchRequest(event=event))
    assert [each.field for each in told] == [
        f"event.input.parts[{index}].content" for index in range(1, 21)
    ]
    many = host_api_pb2.InvokeModelRequest(
        model_id="m",
        messages=[types_pb2.ChatMessage()] * 15,
        tools=[types_pb2.ToolDefinition(parameters_schema_json="{}")] * 15,
    )
    assert len(find_violations(many)) == 20
    zeros = host_api_pb2.EmbedTextsRequest(texts=["\0"] * 1000)
    assert len(find_violations(zeros)) == 20


@pytest.mark.parametrize(
    ("type_", "got"),
    [
        ("", "not set"),
        ("message", '"message"'),
        ("Message.Received", '"Message.Received"'),
        ("message.\tx", "string of 10 bytes"),
        ("消息.收到", '"消息.收到"'),
        ("x " * 40, "string of 80 bytes"),
        ("a.b" * 50, "string of 150 bytes"),
    ],
)
def test_wrong_identifier_is_shown_only_when_it_is_short(type_: str, got: str) -> None:
    event = _event()
    event.type = type_
    [violation] = find_violations(event)
    assert (violation.field, violation.got) == ("type", got)


@pytest.mark.parametrize(
    ("role", "got"), [(0, ["not set"]), (99, ["enum number 99"]), (admin_pb2.ROLE_VIEWER, [])]
)
def test_required_enum_must_have_a_value_that_this_host_knows(role: int, got: list[str]) -> None:
    request = admin_pb2.CreateApiKeyRequest(name="n", role=admin_pb2.Role.ValueType(role))
    assert [each.got for each in find_violations(request)] == got


def test_optional_enum_of_a_later_version_is_let_through() -> None:
    request = gateway_pb2.DispatchRequest(event=_event())
    request.on_disconnect = gateway_pb2.OnDisconnect.ValueType(99)
    request.event.source = event_pb2.EventSource.ValueType(99)
    assert find_violations(request) == []


def test_choice_of_a_later_version_counts_as_a_choice() -> None:
    later = types_pb2.ContentPart.FromString(b"\xc2\x3e\x05later")
    assert find_violations(later) == []
    assert _told(types_pb2.ContentPart()) == ["content: required; got not set"]


@pytest.mark.parametrize(
    ("text", "passes"), [("", False), ("x", True), ("é" * 127, True), ("é" * 128, False)]
)
def test_length_counts_bytes(text: str, passes: bool) -> None:
    request = gateway_pb2.GetRunRequest(run_id=text)
    assert (find_violations(request) == []) is passes


def test_optional_field_that_is_set_and_empty_is_not_the_same_as_absent() -> None:
    assert find_violations(event_pb2.RawEventRef(artifact_id="a", sha256=bytes(32))) == []
    empty = event_pb2.RawEventRef(artifact_id="", sha256=bytes(32))
    assert _told(empty) == ["artifact_id: 1 to 255 bytes; got not set"]


def test_required_message_must_be_there() -> None:
    assert _told(gateway_pb2.DispatchRequest()) == ["event: required; got not set"]


@pytest.mark.parametrize("count", [63, 64])
def test_metadata_of_64_entries_passes(count: int) -> None:
    event = _event()
    event.metadata.clear()
    event.metadata.update({f"{number}".ljust(128, "k"): "v" * 1024 for number in range(count)})
    assert find_violations(event) == []


def test_metadata_of_65_entries_is_told() -> None:
    event = _event()
    event.metadata.update({f"{number}": "" for number in range(65)})
    assert [each.got for each in find_violations(event)] == ["66 entries"]


def test_value_of_metadata_that_is_too_long_is_told_under_its_key() -> None:
    actor = event_pb2.Actor(type="user", metadata={"room": "é" * 513})
    assert [each.got for each in find_violations(actor)] == ['a value of 1026 bytes under "room"']


@pytest.mark.parametrize(
    "time",
    [
        Timestamp(seconds=-62135596801),
        Timestamp(seconds=253402300800),
        Timestamp(nanos=-1),
        Timestamp(nanos=1_000_000_000),
    ],
)
def test_time_that_no_calendar_has_is_told(time: Timestamp) -> None:
    event = _event()
    event.time.CopyFrom(time)
    assert [(each.field, each.rule) for each in find_violations(event)] == [
        ("time", "within the years 1 to 9999")
    ]


def test_duration_must_not_be_negative() -> None:
    request = admin_pb2.CreateApiKeyRequest(
        name="n", role=admin_pb2.ROLE_VIEWER, lifetime=Duration(seconds=-1)
    )
    assert [each.field for each in find_violations(request)] == ["lifetime"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_number_that_is_none_is_told(number: float) -> None:
    assert [each.got for each in find_violations(manifest_pb2.ConfigBounds(min=number))] == [
        str(number)
    ]


def test_page_size_is_bounded_and_may_be_left_out() -> None:
    for size, told in ((0, []), (100, []), (101, ["101"]), (-1, ["-1"])):
        request = gateway_pb2.ListRunsRequest(page_size=size)
        assert [each.got for each in find_violations(request)] == told


def test_event_that_is_too_large_is_told_with_size_and_limit_and_read_no_further() -> None:
    event = _event()
    event.input.text = "\0" * (2 * _MIB)
    [violation] = find_violations(gateway_pb2.DispatchRequest(event=event))
    assert (violation.field, violation.rule) == ("event", "at most 2 MiB")
    assert (violation.size, violation.limit) == (event.ByteSize(), 2 * _MIB)
    assert [each.field for each in find_violations(event, path="event")] == ["event"]


def test_event_of_just_the_limit_passes() -> None:
    event = _event()
    event.input.text = "x" * (2 * _MIB - 200)
    event.input.text += "x" * (2 * _MIB - event.ByteSize())
    assert event.ByteSize() == 2 * _MIB
    assert find_violations(gateway_pb2.DispatchRequest(event=event, agent_id="a")) == []
    event.input.text += "x"
    assert len(find_violations(gateway_pb2.DispatchRequest(event=event, agent_id="a"))) == 1


def test_field_that_is_too_large_has_size_and_limit() -> None:
    request = host_api_pb2.SetStateRequest(
        scope=result_pb2.STATE_SCOPE_ACTOR, key="k", value_json="x" * (256 * 1024 + 1)
    )
    [violation] = find_violations(request)
    assert (violation.field, violation.size, violation.limit) == (
        "value_json",
        256 * 1024 + 1,
        256 * 1024,
    )


def test_limits_that_an_operator_set_hold_instead() -> None:
    validator = Validator(
        {
            "event_bytes": 1000,
            "storage_value_bytes": 10,
            "page_items": 500,
            "interrupt_grace_seconds": 5.0,
        }
    )
    event = _event()
    event.input.text = "x" * 1000
    told = validator.find_violations(gateway_pb2.SubmitEventRequest(event=event))
    assert [(each.field, each.limit, each.rule) for each in told] == [
        ("event", 1000, "at most 1000 bytes")
    ]
    stored = host_api_pb2.SetStorageRequest(
        area=manifest_pb2.STORAGE_AREA_PLUGIN, key="k", value=b"x" * 11
    )
    assert [each.limit for each in validator.find_violations(stored)] == [10]
    assert validator.find_violations(gateway_pb2.ListRunsRequest(page_size=500)) == []
    assert len(validator.find_violations(gateway_pb2.ListRunsRequest(page_size=501))) == 1


def test_bad_manifest_and_bad_result_do_not_fail_the_message_that_brings_them() -> None:
    handshake = discovery_pb2.HandshakeResponse(
        plugin_id="acme/echo", plugin_version="1", instance_id="i"
    )
    hello = attach_pb2.AttachHello(
        protocol_versions=["1"],
        handshake=handshake,
        runners=[manifest_pb2.RunnerManifest(name="a\0b")],
    )
    assert find_violations(attach_pb2.AttachRequest(hello=hello)) == []
    results = attach_pb2.AttachResults(
        run_id="r", results=[result_pb2.RunResult(log=result_pb2.LogLine(text="\0"))]
    )
    assert find_violations(attach_pb2.AttachRequest(results=results)) == []


def test_frame_of_results_that_is_too_large_is_told() -> None:
    delta = result_pb2.MessageDelta(text="x" * _MIB)
    results = [result_pb2.RunResult(run_id="r", message_delta=delta)] * 3
    request = attach_pb2.AttachRequest(
        results=attach_pb2.AttachResults(run_id="r", results=results)
    )
    assert [(each.field, each.rule) for each in find_violations(request)] == [
        ("results", "at most 3 MiB")
    ]
    assert [each.field for each in find_violations(run_pb2.RunResponse(results=results))] == [""]


def test_runner_is_named_as_the_last_part_of_its_id() -> None:
    manifest = _manifest()
    manifest.name = "other"
    assert _told(manifest) == ['name: the last part of the id; got "other"']


def test_two_fields_of_one_name_are_told_by_their_places() -> None:
    manifest = _manifest()
    manifest.config_schema.append(manifest.config_schema[0])
    assert _told(manifest) == [
        "config_schema: names are unique; got entries 0 and 1 with the same name"
    ]


@pytest.mark.parametrize(
    ("event_type", "passes"),
    [
        ("message.received", True),
        ("message.*", True),
        ("a.b.*", True),
        ("*", False),
        ("message", False),
        ("message.re*", False),
        ("*.received", False),
    ],
)
def test_binding_names_types_exactly_or_by_prefix(event_type: str, passes: bool) -> None:
    binding = admin_pb2.Binding(id="b", agent_id="a", event_types=["x.y", event_type])
    told = find_violations(binding)
    assert [each.field for each in told] == ([] if passes else ["event_types[1]"])


def test_message_of_another_contract_is_refused() -> None:
    with pytest.raises(KeyError):
        find_violations(Timestamp())


def test_validation_knows_no_grpc() -> None:
    program = (
        "import sys, host_service.validation.results, host_service.validation.digest\n"
        "import host_service.validation.adapter_extra\n"
        "sys.exit(any(name.partition('.')[0] == 'grpc' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
