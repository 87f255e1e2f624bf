"""Results of a runner are mended where requests are refused, and then held to the same rules."""

import pytest
from runmesh.v1 import result_pb2, run_pb2, types_pb2

from host_service.validation import Validator
from host_service.validation.results import may_need_repair, repair_result, result_violations

_MIB = 1024 * 1024


def _message(text: str) -> types_pb2.ChatMessage:
    return types_pb2.ChatMessage(
        role=types_pb2.CHAT_ROLE_ASSISTANT, parts=[types_pb2.ContentPart(text=text)]
    )


def _completed(text: str) -> result_pb2.RunResult:
    return result_pb2.RunResult(
        run_id="run-1", message_completed=result_pb2.MessageCompleted(message=_message(text))
    )


def test_every_text_is_repaired_at_any_depth_and_told_by_its_path() -> None:
    result = _completed("a\0b")
    result.metadata.update({"k\0": "v\0", "plain": "x"})
    message = result.message_completed.message
    message.reasoning_text = "\0"
    message.parts.add(
        inline=types_pb2.InlineContent(data=b"\0", mime_type="text/plain", name="\0.txt")
    )
    message.tool_calls.add(
        id="1", name="search", arguments_json='{"q":"\\u0000","p":"\\ud800","l":"\\\\u0000"}'
    )
    assert repair_result(result) == [
        "metadata",
        "message_completed.message.reasoning_text",
        "message_completed.message.parts[0].text",
        "message_completed.message.parts[1].inline.name",
        "message_completed.message.tool_calls[0].arguments_json",
    ]
    assert dict(result.metadata) == {"k\ufffd": "v\ufffd", "plain": "x"}
    assert message.parts[0].text == "a\ufffdb"
    assert message.parts[1].inline.data == b"\0"
    assert message.tool_calls[0].arguments_json == ('{"q":"\\ufffd","p":"\\ufffd","l":"\\\\u0000"}')
    assert repair_result(result) == []
    assert result_violations(result) == []


def test_result_of_nothing_but_empty_text_stays_what_it_is() -> None:
    created = result_pb2.ArtifactCreated(ref=types_pb2.ArtifactRef())
    parts = [types_pb2.ContentPart(text="")]
    for result in (
        result_pb2.RunResult(artifact_created=created),
        result_pb2.RunResult(message_delta=result_pb2.MessageDelta(parts=parts)),
        result_pb2.RunResult(
            tool_call_started=result_pb2.ToolCallStarted(parameters_json=""),
        ),
    ):
        before = result.SerializeToString()
        assert repair_result(result) == []
        assert result.SerializeToString() == before


def test_keys_that_become_the_same_leave_one_entry() -> None:
    result = result_pb2.RunResult(metadata={"a\0": "1", "a\ufffd": "2"})
    assert repair_result(result) == ["metadata"]
    assert dict(result.metadata) == {"a\ufffd": "2"}


@pytest.mark.parametrize("text", ["plain", "明天", "\\u0000 is how JSON writes it", "C:\\users"])
def test_other_text_stays_the_very_same(text: str) -> None:
    result = _completed(text)
    before = result.SerializeToString()
    assert repair_result(result) == []
    assert result.SerializeToString() == before


@pytest.mark.parametrize(
    ("value", "may"),
    [
        ("plain", False),
        ("明天 \U0001f600", False),
        ("a\0b", True),
        ('"\\ud83d"', True),
    ],
)
def test_bytes_on_the_wire_tell_whether_repair_may_be_called_for(value: str, may: bool) -> None:
    frame = run_pb2.RunResponse(results=[_completed("x"), _completed(value)])
    assert may_need_repair(frame.SerializeToString()) is may


def test_whatever_is_repaired_is_told_by_the_bytes_on_the_wire() -> None:
    state = result_pb2.StateUpdated(
        scope=result_pb2.STATE_SCOPE_ACTOR, key="k", value_json='"\\u0000"'
    )
    for result in (_completed("\0"), result_pb2.RunResult(state_updated=state)):
        assert may_need_repair(result.SerializeToString())
        assert repair_result(result)


def test_result_is_held_to_the_contracts_rules() -> None:
    cut = "the end of the text where a name in double quotes should be"
    state = result_pb2.StateUpdated(key="", value_json="{")
    result = result_pb2.RunResult(run_id="run-1", state_updated=state)
    assert [str(each) for each in result_violations(result)] == [
        "state_updated.key: required; got not set",
        "state_updated.scope: required; got not set",
        f"state_updated.value_json: a JSON value; got {cut} at line 1, column 2",
    ]


def test_malformed_arguments_of_a_tool_call_are_the_tools_business() -> None:
    result = _completed("x")
    for text in ("", "{", "not JSON"):
        result.message_completed.message.tool_calls.add(id="1", name="t", arguments_json=text)
    assert result_violations(result) == []


def test_inline_artifact_does_not_count_towards_the_results_size() -> None:
    created = result_pb2.ArtifactCreated(
        inline=types_pb2.InlineContent(data=b"x" * _MIB, mime_type="text/plain")
    )
    assert result_violations(result_pb2.RunResult(run_id="r", artifact_created=created)) == []
    created.inline.data += b"x"
    [violation] = result_violations(result_pb2.RunResult(run_id="r", artifact_created=created))
    assert (violation.field, violation.size) == ("artifact_created.inline.data", _MIB + 1)


def test_result_that_is_too_large_is_told_with_size_and_limit() -> None:
    [violation] = result_violations(_completed("x" * _MIB))
    assert (violation.field, violation.rule, violation.limit) == ("", "at most 1 MiB", _MIB)
    larger = Validator({"result_bytes": 2 * _MIB}).find_violations
    assert result_violations(_completed("x" * _MIB), larger) == []
