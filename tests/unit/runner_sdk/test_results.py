"""Constructors of results: each makes the contract's message, and takes any Python text."""

import pytest
from runmesh.v1 import result_pb2, types_pb2
from runmesh.v1.result_pb2 import RunResult

from runner_sdk._text import Delta
from runner_sdk.results import ResultConstructors as Make


def test_a_reply_is_a_completed_message_of_text() -> None:
    result = Make.reply("hello", message_id="m1")

    message = result.message_completed.message
    assert (message.role, message.message_id) == (types_pb2.CHAT_ROLE_ASSISTANT, "m1")
    assert [part.text for part in message.parts] == ["hello"]


def test_deltas_carry_text_or_reasoning() -> None:
    assert Make.delta("a", "m1") == Delta("a", message_id="m1")
    assert Make.reasoning("b") == Delta("b", reasoning=True)


def test_a_message_takes_text_refs_and_parts() -> None:
    ref = types_pb2.ArtifactRef(artifact_id="a1", type="image")
    url = types_pb2.ContentPart(url=types_pb2.UrlContent(url="https://example.org/"))

    message = Make.message(
        "see", ref, url, reasoning="hm", artifacts=[ref], metadata={"k": "v"}
    ).message_completed.message

    assert [part.WhichOneof("content") for part in message.parts] == ["text", "artifact", "url"]
    assert message.reasoning_text == "hm"
    assert [artifact.artifact_id for artifact in message.artifacts] == ["a1"]
    assert dict(message.metadata) == {"k": "v"}


def test_parts_can_be_appended_to_a_message() -> None:
    delta = Make.delta_parts("a", message_id="m1").message_delta

    assert (delta.message_id, delta.parts[0].text) == ("m1", "a")


def test_tool_calls_carry_exact_json() -> None:
    started = Make.tool_started("c1", "lookup", {"chat": 9007199254740993}).tool_call_started
    completed = Make.tool_completed("c1", "lookup", [1, 2.5, "世"]).tool_call_completed

    assert started.parameters_json == '{"chat":9007199254740993}'
    assert completed.result_json == '[1,2.5,"世"]'


def test_json_that_is_not_told_is_absent() -> None:
    started = Make.tool_started("c1", "lookup", preview="...").tool_call_started
    failed = Make.tool_completed("c1", "lookup", error_code="timeout", error_message="30 s")

    assert not started.HasField("parameters_json")
    assert not failed.tool_call_completed.HasField("result_json")
    assert failed.tool_call_completed.error_code == "timeout"


def test_an_artifact_is_a_ref_or_bytes() -> None:
    ref = types_pb2.ArtifactRef(artifact_id="a1", type="image")

    by_ref = Make.artifact(ref).artifact_created
    inline = Make.artifact(b"\x00\xff", "image/png", "x.png", "image", "a dot").artifact_created

    assert by_ref.ref == ref
    assert (inline.inline.data, inline.inline.mime_type) == (b"\x00\xff", "image/png")
    assert (inline.type, inline.summary) == ("image", "a dot")


def test_state_has_a_scope_a_key_and_a_json_value() -> None:
    state = Make.set_state("actor", "seen", None).state_updated

    assert state.scope == result_pb2.STATE_SCOPE_ACTOR
    assert (state.key, state.value_json) == ("seen", "null")


def test_an_unknown_scope_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"scope: 'user' is none of conversation, actor"):
        Make.set_state("user", "seen", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_what_json_cannot_hold_is_refused_with_the_fields_name(value: object) -> None:
    with pytest.raises(ValueError, match="state conversation 'k': not a JSON value"):
        Make.set_state("conversation", "k", value)


def test_an_action_has_a_key_that_makes_it_unique() -> None:
    action = Make.request_action(
        "message.send", {"to": 1}, {"text": "hi"}, idempotency_key="k", approval_hint="advised"
    ).action_requested

    assert (action.target_json, action.payload_json) == ('{"to":1}', '{"text":"hi"}')
    assert action.idempotency_key == "k"
    assert action.approval_hint == result_pb2.APPROVAL_HINT_ADVISED


def test_usage_that_is_not_known_is_absent() -> None:
    [usage] = Make.usage("m", input_tokens=0).usage_reported.usage

    assert usage.HasField("input_tokens")
    assert not usage.HasField("output_tokens")


def test_a_run_ends_well_or_badly() -> None:
    completed = Make.completed("length", message="last words").run_completed
    failed = Make.failed("acme.no", "no", retryable=True, details={"a": "b"}).run_failed

    assert (completed.finish_reason, completed.message.parts[0].text) == ("length", "last words")
    assert (failed.code, failed.message, failed.retryable) == ("acme.no", "no", True)
    assert dict(failed.details) == {"a": "b"}


def test_a_log_line_has_a_level() -> None:
    assert Make.log("x", "warning").log.level == result_pb2.LOG_LEVEL_WARNING


@pytest.mark.parametrize(
    "result",
    [
        Make.reply("\ud83d\ude00 \ud83d"),
        Make.message("\ud83d\ude00 \ud83d"),
        Make.log("\ud83d\ude00 \ud83d"),
        Make.failed("acme.no", "\ud83d\ude00 \ud83d", details={"x": "\ud83d"}),
        Make.completed(message="\ud83d\ude00 \ud83d"),
        Make.tool_started("c", "t", {"x": ["\ud83d\ude00 \ud83d"]}),
        Make.set_state("runner", "k", "\ud83d\ude00 \ud83d"),
        Make.delta_parts("\ud83d\ude00 \ud83d"),
    ],
    ids=lambda result: result.WhichOneof("payload"),
)
def test_halves_of_surrogate_pairs_are_mended_in_every_result(result: RunResult) -> None:
    assert "😀 \ufffd" in str(result.SerializeToString(), "utf-8", "replace")


def test_usage_is_reported_as_a_model_told_it() -> None:
    told = types_pb2.TokenUsage(model_id="m", input_tokens=3, cache_read_tokens=0)

    [usage] = Make.usage(told).usage_reported.usage

    assert usage == told


def test_there_is_a_constructor_for_every_result() -> None:
    made = [
        Make.delta_parts("x"),
        Make.reply("x"),
        Make.tool_started("c", "t"),
        Make.tool_completed("c", "t"),
        Make.artifact(b"x"),
        Make.set_state("runner", "k", 1),
        Make.request_action("x.y", idempotency_key="k"),
        Make.usage("m"),
        Make.log("x"),
        Make.completed(),
        Make.failed("acme.no", "no"),
    ]

    payloads = RunResult.DESCRIPTOR.oneofs_by_name["payload"].fields
    assert [result.WhichOneof("payload") for result in made] == [field.name for field in payloads]
