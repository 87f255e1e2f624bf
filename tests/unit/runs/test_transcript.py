"""Tests of `host_service.runs.transcript`: what was said, as an item, and the item as a message."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runmesh.v1 import event_pb2, host_api_pb2, result_pb2, types_pb2

from host_service.runs.transcript import is_plain, item_of_input, item_of_message, message_of_record
from stores.records import TranscriptItem

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
IMAGE = types_pb2.ContentPart(
    artifact=types_pb2.ArtifactRef(artifact_id="a-1", type="image", size_bytes=3)
)
FILE = types_pb2.ArtifactRef(artifact_id="a-2", type="file", size_bytes=2**60)

# Whatever is valid in a protobuf string, but U+0000, which the host replaces on the way in.
UNICODE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)


def heard(input: event_pb2.EventInput, **fields: object) -> TranscriptItem:
    envelope = event_pb2.EventEnvelope(
        workspace_id="acme", bot_id="desk", event_id="event-1", input=input
    )
    envelope.MergeFrom(event_pb2.EventEnvelope(**fields))  # type: ignore[arg-type]
    return item_of_input(envelope, conversation_key="talk", run_id="run-1", created_at=NOON)


def said(message: types_pb2.ChatMessage, *, incomplete: bool = False) -> TranscriptItem:
    return item_of_message(
        result_pb2.MessageCompleted(message=message, incomplete=incomplete),
        conversation_key="talk",
        workspace="acme",
        bot="desk",
        event_id="event-1",
        run_id="run-1",
        runner_id="plugin:a/b/c",
        created_at=NOON,
    )


def parts(*texts: str) -> list[types_pb2.ContentPart]:
    return [types_pb2.ContentPart(text=text) for text in texts]


@given(UNICODE, UNICODE)
def test_every_text_comes_back_exactly(first: str, second: str) -> None:
    user = heard(event_pb2.EventInput(text=first))
    agent = said(types_pb2.ChatMessage(parts=parts(first, second)))
    for item, text in ((user, first), (agent, first + second)):
        assert item.text == message_of_record(item).text == text
        assert is_plain(item.content)
        assert not message_of_record(item).parts


def test_what_a_user_says_names_event_run_actor_and_time() -> None:
    actor = event_pb2.Actor(type="user", id="u", name="Ada", metadata={"k": "v"})
    item = heard(event_pb2.EventInput(text="hello"), actor=actor)
    assert (item.role, item.kind, item.workspace, item.bot) == ("user", "message", "acme", "desk")
    expected = host_api_pb2.TranscriptItem(
        transcript_id=item.transcript_id,
        event_id="event-1",
        run_id="run-1",
        role=types_pb2.CHAT_ROLE_USER,
        kind=host_api_pb2.TRANSCRIPT_KIND_MESSAGE,
        text="hello",
        actor=actor,
    )
    expected.created_at.FromDatetime(NOON)
    assert message_of_record(item) == expected


def test_what_an_agent_says_has_its_notes_and_that_it_was_cut() -> None:
    message = types_pb2.ChatMessage(
        role=types_pb2.CHAT_ROLE_ASSISTANT,
        parts=parts("so far"),
        reasoning_text="a thought",
        metadata={"tone": "kind"},
    )
    shown = message_of_record(said(message, incomplete=True))
    assert (shown.runner_id, shown.incomplete) == ("plugin:a/b/c", True)
    assert dict(shown.metadata) == {"tone": "kind"}
    assert "thought" not in str(shown)


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (types_pb2.CHAT_ROLE_UNSPECIFIED, ("assistant", "message")),
        (types_pb2.CHAT_ROLE_ASSISTANT, ("assistant", "message")),
        (types_pb2.CHAT_ROLE_TOOL, ("tool", "tool_result")),
        (types_pb2.CHAT_ROLE_SYSTEM, ("system", "system")),
        # A runner does not speak for its users.
        (types_pb2.CHAT_ROLE_USER, ("assistant", "message")),
    ],
)
def test_role_of_a_message_decides_what_the_item_is(
    role: types_pb2.ChatRole.ValueType, expected: tuple[str, str]
) -> None:
    item = said(types_pb2.ChatMessage(role=role, parts=parts("x")))
    shown = message_of_record(item)
    names = (
        types_pb2.ChatRole.Name(shown.role),
        host_api_pb2.TranscriptKind.Name(shown.kind),
    )
    assert (item.role, item.kind) == expected
    assert names == (f"CHAT_ROLE_{expected[0].upper()}", f"TRANSCRIPT_KIND_{expected[1].upper()}")


def test_message_that_only_calls_tools_is_a_tool_call() -> None:
    call = types_pb2.ToolCall(id="1", name="look", arguments_json="{}")
    assert said(types_pb2.ChatMessage(tool_calls=[call])).kind == "tool_call"
    assert said(types_pb2.ChatMessage(tool_calls=[call], parts=parts("x"))).kind == "message"


@pytest.mark.parametrize("text", [None, "", "look"])
def test_parts_are_kept_in_order_where_they_are_more_than_the_text(text: str | None) -> None:
    content = [*parts("look"), IMAGE, *parts("!")]
    user = heard(event_pb2.EventInput(text=text, parts=content, attachments=[FILE]))
    agent = said(types_pb2.ChatMessage(parts=content, artifacts=[FILE]))
    assert user.text == ("look!" if text is None else text)
    assert agent.text == "look!"
    for item in (user, agent):
        shown = message_of_record(item)
        assert not is_plain(item.content)
        assert list(shown.parts) == content
        assert list(shown.artifacts) == [FILE]


def test_text_that_came_as_parts_alone_is_text() -> None:
    assert heard(event_pb2.EventInput(parts=parts("to be ", "found"))).text == "to be found"
    assert heard(event_pb2.EventInput(parts=[IMAGE])).text is None
    assert not message_of_record(heard(event_pb2.EventInput(parts=[IMAGE]))).HasField("text")
    assert said(types_pb2.ChatMessage(artifacts=[FILE])).text is None


def test_platforms_own_structure_is_not_in_the_transcript() -> None:
    item = heard(event_pb2.EventInput(text="x", message_chain_json='["raw"]'))
    assert b"raw" not in item.content


def test_items_from_before_are_shown_from_their_record() -> None:
    content = event_pb2.EventInput(text="look", parts=[*parts("look"), IMAGE], attachments=[FILE])
    message = types_pb2.ChatMessage(
        message_id="m",
        role=types_pb2.CHAT_ROLE_ASSISTANT,
        parts=[*parts("look"), IMAGE],
        artifacts=[FILE],
        metadata={"k": "v"},
    )
    actor = event_pb2.Actor(type="user", id="u")
    for new, old in (
        (heard(content, actor=actor), content),
        (said(message), message),
        (heard(event_pb2.EventInput(text="x")), event_pb2.EventInput(text="x")),
        (heard(event_pb2.EventInput(text="")), event_pb2.EventInput()),
        (said(types_pb2.ChatMessage(parts=parts("x"))), types_pb2.ChatMessage(parts=parts("x"))),
    ):
        before = replace(new, content=old.SerializeToString())
        assert not is_plain(before.content)
        assert message_of_record(before) == message_of_record(new)
