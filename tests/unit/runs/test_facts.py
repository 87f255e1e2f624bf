"""Tests of `host_service.runs.facts`: what results leave in transcript, ledger and event log."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from runmesh.v1 import result_pb2, types_pb2

from host_service.runs.checker import Numbered
from host_service.runs.event import Event
from host_service.runs.facts import Projector, log_entries, result_record, usage_record
from host_service.runs.progress import Progress
from host_service.runs.transcript import message_of_record
from stores.records import TranscriptItem, Usage
from tests.unit.runs.samples import (
    NOON,
    RUNNER,
    a_delta,
    a_message,
    a_result,
    an_envelope,
    an_event,
)


class Story:
    """A run whose results are projected one after the other, as `ActiveRun` does it."""

    def __init__(self, event: Event | None = None) -> None:
        self.progress = Progress()
        self.event = event or an_event()
        self.projector = Projector(
            run_id="run-1", runner_id=RUNNER, event=self.event, progress=self.progress
        )
        self.items: list[TranscriptItem] = []
        self.closed: list[str] = []
        self._number = 0

    def says(self, *payloads: Any) -> None:
        """Take in deltas and messages."""
        for payload in payloads:
            if isinstance(payload, result_pb2.MessageDelta):
                self._number += 1
                self.progress.note([a_result(self._number, message_delta=payload)])
            else:
                completed = result_pb2.MessageCompleted(message=payload)
                self.project(message_completed=completed)

    def project(self, **payload: Any) -> result_pb2.RunResult:
        self._number += 1
        result = a_result(self._number, **payload)
        projection = self.projector.project(result, result.WhichOneof("payload") or "")
        if projection.item is not None:
            self.items.append(projection.item)
        if projection.closed_message_id:
            self.closed.append(projection.closed_message_id)
        return result

    def ends(
        self, completed: result_pb2.RunCompleted | None
    ) -> Sequence[result_pb2.MessageCompleted]:
        """Return the messages that the host completes at the end, projected."""
        last = [each.message_completed for each in self.projector.last_messages(completed)]
        for each in last:
            self.project(message_completed=each)
        return last


def well(message: types_pb2.ChatMessage | None = None) -> result_pb2.RunCompleted:
    return result_pb2.RunCompleted(finish_reason="stop", message=message)


def texts(messages: Iterable[result_pb2.MessageCompleted]) -> list[str]:
    return ["".join([part.text for part in each.message.parts]) for each in messages]


def an_artifact(id: str) -> types_pb2.ArtifactRef:
    return types_pb2.ArtifactRef(artifact_id=id, type="file", size_bytes=1, sha256=b"0" * 32)


def created(id: str) -> result_pb2.ArtifactCreated:
    return result_pb2.ArtifactCreated(ref=an_artifact(id))


def attached(items: Sequence[TranscriptItem]) -> list[list[str]]:
    """Return the ids of the artifacts of each message."""
    messages = [message_of_record(item) for item in items]
    return [[artifact.artifact_id for artifact in each.artifacts] for each in messages]


def test_completed_message_becomes_an_item_of_its_conversation() -> None:
    story = Story()
    story.says(a_message("你好", id="m"))
    (item,) = story.items
    assert (item.text, item.role, item.kind) == ("你好", "assistant", "message")
    assert (item.run_id, item.runner_id, item.event_id) == ("run-1", RUNNER, "event-1")
    assert (item.workspace, item.bot) == ("acme", "desk")
    assert item.conversation_key == story.event.conversation_key
    shown = message_of_record(item)
    assert (shown.text, list(shown.parts), shown.run_id) == ("你好", [], "run-1")


def test_message_of_an_event_without_a_conversation_is_no_item() -> None:
    story = Story(an_event(conversation_id="", thread_id=""))
    story.says(a_message("hello"))
    assert story.items == []
    assert story.projector.said_something


@pytest.mark.parametrize("deltas_id", ["", "m"])
@pytest.mark.parametrize("completed_id", ["", "m"])
def test_completed_message_takes_the_place_of_its_deltas(deltas_id: str, completed_id: str) -> None:
    story = Story()
    story.says(a_delta("Hel", id=deltas_id), a_delta("lo", id=deltas_id))
    result = story.project(
        message_completed=result_pb2.MessageCompleted(message=a_message("Hello", id=completed_id))
    )
    assert result.message_completed.message.message_id == (completed_id or story.closed[0])
    assert len(story.closed) == 1
    assert story.ends(well()) == []
    assert [item.text for item in story.items] == ["Hello"]


def test_message_without_id_and_role_gets_both() -> None:
    story = Story()
    message = types_pb2.ChatMessage(parts=[types_pb2.ContentPart(text="x")])
    result = story.project(message_completed=result_pb2.MessageCompleted(message=message))
    assert result.message_completed.message.message_id
    assert result.message_completed.message.role == types_pb2.CHAT_ROLE_ASSISTANT


def test_artifacts_go_with_the_next_completed_message_and_once() -> None:
    story = Story()
    story.project(artifact_created=created("a"))
    story.project(artifact_created=created("b"))
    story.says(a_message("one"), a_message("two"))
    assert attached(story.items) == [["a", "b"], []]


def test_artifact_that_the_message_names_itself_is_not_attached_twice() -> None:
    story = Story()
    story.project(artifact_created=created("a"))
    message = a_message("here")
    message.artifacts.append(an_artifact("a"))
    story.says(message)
    assert attached(story.items) == [["a"]]


@pytest.mark.parametrize("ending", [well(), None])
def test_artifacts_that_no_message_took_become_a_message_of_their_own(
    ending: result_pb2.RunCompleted | None,
) -> None:
    story = Story()
    story.says(a_message("before"))
    story.project(artifact_created=created("a"))
    (last,) = story.ends(ending)
    assert last.message.role == types_pb2.CHAT_ROLE_ASSISTANT
    assert attached(story.items) == [[], ["a"]]


def test_artifacts_go_with_what_the_host_completes_at_the_end() -> None:
    story = Story()
    story.says(a_delta("text"))
    story.project(artifact_created=created("a"))
    assert texts(story.ends(well())) == ["text"]
    assert attached(story.items) == [["a"]]


def test_deltas_that_nobody_completed_are_completed_by_the_host() -> None:
    story = Story()
    story.says(a_delta("A", id="a"), a_delta("B", id="b"))
    last = story.ends(well())
    assert [(each.message.message_id, *texts([each])) for each in last] == [("a", "A"), ("b", "B")]
    assert not any(each.incomplete for each in last)
    assert [item.incomplete for item in story.items] == [False, False]


def test_deltas_of_a_run_that_did_not_end_well_are_an_incomplete_message() -> None:
    story = Story()
    story.says(a_delta("Hel"))
    (last,) = story.ends(None)
    assert last.incomplete
    assert [(item.text, item.incomplete) for item in story.items] == [("Hel", True)]


def test_deltas_that_said_nothing_become_no_blank_message() -> None:
    story = Story()
    story.says(a_delta("", id="a"), a_delta(""))
    assert story.ends(well()) == []


def test_final_message_of_a_runner_that_sends_nothing_else_is_the_message() -> None:
    story = Story()
    assert texts(story.ends(well(a_message("all of it")))) == ["all of it"]
    assert [item.text for item in story.items] == ["all of it"]


@pytest.mark.parametrize("final_id", ["", "m"])
@pytest.mark.parametrize("deltas_id", ["", "m"])
def test_final_message_takes_the_place_of_its_deltas(deltas_id: str, final_id: str) -> None:
    story = Story()
    story.says(a_delta("Hel", id=deltas_id))
    last = story.ends(well(a_message("Hello", id=final_id)))
    assert texts(last) == ["Hello"]
    assert last[0].message.message_id
    if deltas_id:
        assert last[0].message.message_id == "m"


def test_final_message_under_another_id_leaves_the_deltas_of_the_first_alone() -> None:
    story = Story()
    story.says(a_delta("A", id="a"))
    assert texts(story.ends(well(a_message("B", id="b")))) == ["A", "B"]


@pytest.mark.parametrize("final_id", ["", "m"])
def test_final_message_after_a_completed_one_is_ignored_unless_its_id_is_new(final_id: str) -> None:
    story = Story()
    story.says(a_message("said", id="m"))
    assert story.ends(well(a_message("said again", id=final_id))) == []
    assert [item.text for item in story.items] == ["said"]


def test_final_message_after_a_completed_one_counts_when_its_id_is_new() -> None:
    story = Story()
    story.says(a_message("one", id="a"))
    assert texts(story.ends(well(a_message("two", id="b")))) == ["two"]


@pytest.mark.parametrize("final_id", ["", "m"])
def test_final_message_that_is_ignored_takes_no_deltas_with_it(final_id: str) -> None:
    story = Story()
    story.says(a_message("one", id="m"), a_delta("and more"))
    assert texts(story.ends(well(a_message("one", id=final_id)))) == ["and more"]


@pytest.mark.parametrize(
    ("payload", "speaks"),
    [
        ({"message_completed": result_pb2.MessageCompleted(message=a_message("x"))}, True),
        ({"message_completed": result_pb2.MessageCompleted(message=a_message(""))}, False),
        (
            {
                "message_completed": result_pb2.MessageCompleted(
                    message=types_pb2.ChatMessage(parts=[types_pb2.ContentPart(text="")])
                )
            },
            False,
        ),
        (
            {
                "message_completed": result_pb2.MessageCompleted(
                    message=types_pb2.ChatMessage(
                        parts=[types_pb2.ContentPart(url=types_pb2.UrlContent(url="u"))]
                    )
                )
            },
            True,
        ),
        ({"artifact_created": created("a")}, True),
        (
            {
                "artifact_created": result_pb2.ArtifactCreated(
                    inline=types_pb2.InlineContent(data=b"x", mime_type="text/plain")
                )
            },
            True,
        ),
        ({"action_requested": result_pb2.ActionRequested(action="message.send")}, True),
        ({"tool_call_started": result_pb2.ToolCallStarted(call_id="c", tool_name="t")}, False),
        ({"log": result_pb2.LogLine(text="x")}, False),
        ({"usage_reported": result_pb2.UsageReported()}, False),
        ({"state_updated": result_pb2.StateUpdated(key="k", value_json="1")}, False),
    ],
)
def test_text_part_artifact_or_action_is_saying_something(
    payload: dict[str, Any], *, speaks: bool
) -> None:
    story = Story()
    story.project(**payload)
    assert story.projector.said_something is speaks


def test_usage_of_a_model_takes_the_place_of_what_it_reported_before() -> None:
    story = Story()
    assert story.projector.usage is None
    for model, tokens in (("big", 10), ("small", 1), ("big", 25)):
        usage = [types_pb2.TokenUsage(model_id=model, input_tokens=tokens)]
        story.project(usage_reported=result_pb2.UsageReported(usage=usage))
    assert story.projector.usage == (Usage("big", 25, None), Usage("small", 1, None))


def test_usage_of_the_end_takes_the_place_of_all_reports() -> None:
    story = Story()
    usage = [types_pb2.TokenUsage(model_id="big", input_tokens=1)]
    story.project(usage_reported=result_pb2.UsageReported(usage=usage))
    final = [types_pb2.TokenUsage(model_id="small", output_tokens=2)]
    story.projector.note_usage(final, replace=True)
    assert story.projector.usage == (Usage("small", None, 2),)


def test_unknown_counts_stay_unknown_and_large_ones_exact() -> None:
    reported = types_pb2.TokenUsage(model_id="m", input_tokens=0, output_tokens=2**62 + 1)
    assert usage_record(reported) == Usage("m", 0, 2**62 + 1, None, None, None)


def test_record_of_a_result_has_both_numbers_and_the_result_as_it_is_delivered() -> None:
    result = a_result(7, log=result_pb2.LogLine(text="x"))
    result.first_sequence = 5
    record = result_record(Numbered(result, "log", 3), NOON)
    assert (record.run_id, record.sequence, record.first_sequence) == ("run-1", 7, 5)
    assert (record.runner_sequence, record.kind, record.at) == (3, "log", NOON)
    assert result_pb2.RunResult.FromString(record.payload) == result


def test_tool_calls_artifacts_actions_and_failures_are_facts_of_the_event_log() -> None:
    payloads: list[dict[str, Any]] = [
        {"tool_call_started": result_pb2.ToolCallStarted(call_id="c", tool_name="t")},
        {"tool_call_completed": result_pb2.ToolCallCompleted(call_id="c", tool_name="t")},
        {"message_completed": result_pb2.MessageCompleted(message=a_message("x"))},
        {"artifact_created": created("a")},
        {"action_requested": result_pb2.ActionRequested(action="message.send")},
        {"usage_reported": result_pb2.UsageReported()},
        {"run_failed": result_pb2.RunFailed(code="runner.error", message="m")},
    ]
    results = [a_result(number, **payload) for number, payload in enumerate(payloads, start=1)]
    records = [
        result_record(Numbered(each, each.WhichOneof("payload") or "", each.sequence), NOON)
        for each in results
    ]
    entries = log_entries(records)
    assert [(entry.kind, entry.sequence) for entry in entries] == [
        ("tool_call_started", 1),
        ("tool_call_completed", 2),
        ("artifact_created", 4),
        ("action_requested", 5),
        ("run_failed", 7),
    ]
    assert all(
        entry.payload == results[(entry.sequence or 0) - 1].SerializeToString() for entry in entries
    )


def test_event_itself_is_an_item_only_when_it_says_something_in_a_conversation() -> None:
    item = an_event().transcript_item("run-1")
    assert item is not None
    assert (item.role, item.text, item.run_id) == ("user", "hello", "run-1")
    assert an_event(input=None).transcript_item("run-1") is None
    assert an_event(conversation_id="", thread_id="").transcript_item("run-1") is None
    assert message_of_record(item).actor == an_envelope().actor
