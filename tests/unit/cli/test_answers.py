"""Answers reach pipes byte for byte and terminals without danger."""

import io

import pytest
from runmesh.v1 import result_pb2, types_pb2

from host_service.cli.answers import AnswerWriter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def delta(text: str, message_id: str = "m1") -> result_pb2.RunResult:
    return result_pb2.RunResult(
        message_delta=result_pb2.MessageDelta(message_id=message_id, text=text)
    )


def reasoning(text: str) -> result_pb2.RunResult:
    return result_pb2.RunResult(
        message_delta=result_pb2.MessageDelta(message_id="m1", reasoning_text=text)
    )


def message(text: str, message_id: str = "m1") -> types_pb2.ChatMessage:
    return types_pb2.ChatMessage(message_id=message_id, parts=[types_pb2.ContentPart(text=text)])


def completed(text: str, message_id: str = "m1") -> result_pb2.RunResult:
    return result_pb2.RunResult(
        message_completed=result_pb2.MessageCompleted(message=message(text, message_id))
    )


def final(text: str, message_id: str = "") -> result_pb2.RunResult:
    return result_pb2.RunResult(
        run_completed=result_pb2.RunCompleted(
            finish_reason="stop", message=message(text, message_id)
        )
    )


def tool_started() -> result_pb2.RunResult:
    return result_pb2.RunResult(
        tool_call_started=result_pb2.ToolCallStarted(
            call_id="c", tool_name="search", parameters_json='{"q": "x"}'
        )
    )


def written(*results: result_pb2.RunResult, terminal: bool = False, colour: bool = False) -> str:
    output = Terminal() if terminal else io.StringIO()
    writer = AnswerWriter(output=output, remarks=io.StringIO(), colour=colour)
    for result in results:
        writer.show(result)
    writer.end()
    return output.getvalue()


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([delta("a"), delta("b"), completed("ab")], "ab\n"),
        ([delta("a"), completed("abc")], "abc\n"),
        ([completed("whole")], "whole\n"),
        ([delta("cut short")], "cut short\n"),
        ([delta("line\n"), completed("line\n")], "line\n"),
        (
            [delta("one"), completed("one"), delta("two", "m2"), completed("two", "m2")],
            "one\ntwo\n",
        ),
        (
            [delta("one"), delta("two", "m2"), completed("one"), completed("two", "m2")],
            "one\ntwo\n",
        ),
        ([delta("wrong"), completed("right")], "wrong\nright\n"),
        ([delta("", "m1"), completed("")], ""),
        ([final("only at the end")], "only at the end\n"),
        ([completed("said"), final("said")], "said\n"),
        ([completed("said"), final("more", "m9")], "said\nmore\n"),
        ([delta("\x1b[31m\r世界\x07")], "\x1b[31m\r世界\x07\n"),
    ],
)
def test_a_pipe_gets_each_message_once_and_ended_by_a_newline(
    results: list[result_pb2.RunResult], expected: str
) -> None:
    assert written(*results) == expected


def test_a_message_without_an_id_is_the_one_in_progress() -> None:
    assert written(delta("a", ""), delta("b", ""), completed("abc", "")) == "abc\n"
    assert written(delta("a", ""), completed("ab", "m1"), delta("c", "m2")) == "ab\nc\n"


def test_every_delta_is_flushed_before_the_next_comes() -> None:
    class Counting(io.StringIO):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1

    output = Counting()
    writer = AnswerWriter(output=output, remarks=io.StringIO(), colour=False)
    for expected, text in enumerate("abc", start=1):
        writer.show(delta(text))
        assert output.flushes == expected


def test_remarks_and_thoughts_stay_out_of_a_pipe() -> None:
    output, remarks = io.StringIO(), io.StringIO()
    writer = AnswerWriter(output=output, remarks=remarks, colour=True)
    for result in (reasoning("hm"), tool_started(), delta("done"), completed("done")):
        writer.show(result)
    writer.end()
    assert output.getvalue() == "done\n"
    assert remarks.getvalue() == '→ search {"q": "x"}\n'


def test_a_terminal_shows_remarks_on_lines_of_their_own() -> None:
    assert written(delta("let me look"), tool_started(), delta("found"), terminal=True) == (
        'let me look\n→ search {"q": "x"}\nfound\n'
    )


def test_a_terminal_shows_thoughts_dimly_and_apart() -> None:
    shown = written(reasoning("hm"), reasoning("m"), delta("yes"), terminal=True, colour=True)
    assert shown == "\x1b[2mhmm\x1b[0m\nyes\n"


def test_an_agent_cannot_drive_the_terminal() -> None:
    shown = written(delta("\x1b]0;owned\x07\x9b2J\rx"), terminal=True)
    assert shown == "␛]0;owned␇\ufffd2J␍x\n"


def test_a_failed_tool_is_told_with_its_reason() -> None:
    remarks = io.StringIO()
    writer = AnswerWriter(output=io.StringIO(), remarks=remarks, colour=False)
    writer.show(
        result_pb2.RunResult(
            tool_call_completed=result_pb2.ToolCallCompleted(
                call_id="c", tool_name="search", error_code="timeout", error_message="too\nslow"
            )
        )
    )
    assert remarks.getvalue() == "✗ search: too slow\n"


def test_files_are_told_by_name_size_and_id() -> None:
    remarks = io.StringIO()
    writer = AnswerWriter(output=io.StringIO(), remarks=remarks, colour=False)
    artifact = types_pb2.ArtifactRef(
        artifact_id="a1", type="file", mime_type="text/csv", name="t.csv", size_bytes=12
    )
    writer.show(result_pb2.RunResult(artifact_created=result_pb2.ArtifactCreated(ref=artifact)))
    assert remarks.getvalue() == "[t.csv, text/csv, 12 bytes: a1]\n"


def test_sources_of_an_answer_follow_it_as_remarks() -> None:
    output, remarks = io.StringIO(), io.StringIO()
    result = completed("The run's rights [1].")
    metadata = result.message_completed.message.metadata
    metadata["sources"] = '[{"document":"a\\u001b.md","position":120,"score":0.9,"base":"docs"}]'
    metadata["sources.2"] = '[{"document":"b.md"},7]'
    AnswerWriter(output=output, remarks=remarks, colour=False).show(result)

    assert output.getvalue() == "The run's rights [1].\n"
    told = remarks.getvalue()
    assert told.startswith("sources: [1] a")
    assert told.endswith(".md in docs, at 120 · [2] b.md\n")
    assert "\x1b" not in told


@pytest.mark.parametrize("value", ["", "no JSON", "{}", '"text"', "[1, null]", "[" * 100_000])
def test_metadata_that_means_something_else_by_sources_is_not_shown(value: str) -> None:
    output, remarks = io.StringIO(), io.StringIO()
    result = completed("Hello.")
    result.message_completed.message.metadata["sources"] = value
    AnswerWriter(output=output, remarks=remarks, colour=False).show(result)

    assert remarks.getvalue() == ""
