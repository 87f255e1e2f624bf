"""Tests of `host_service.runs.context`: what a runner is handed is the event, exact and alone."""

from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st
from runmesh.v1 import context_pb2, event_pb2, manifest_pb2, types_pb2

from host_service.agents.agent import Agent, Scope
from host_service.authorization.snapshot import freeze
from host_service.runs.asked import asked_by
from host_service.runs.context import Circumstances, build_context, duration
from host_service.runs.cursors import Cursors
from host_service.runs.event import Event
from tests.unit.runs.samples import NOON, an_agent, an_event
from tests.unit.runs.test_asked import ALL

CONFIG = '{"big": 9007199254740993, "text": "你\\ud83d\\ude00"}'


def built(
    event: Event | None = None,
    *,
    agent: Agent | None = None,
    manifest: manifest_pb2.RunnerManifest = ALL,
    config_json: str = CONFIG,
    **circumstances: Any,
) -> tuple[context_pb2.RunContext, int]:
    event, agent = event or an_event(), agent or an_agent()
    around: dict[str, Any] = {
        "host_id": "host",
        "host_version": "1.2",
        "trace_id": "0" * 31 + "1",
        "deadline": None,
        "latest_position": None,
    }
    return build_context(
        run_id="run-1",
        event=event,
        agent=agent,
        binding_id="messages",
        session_key="session",
        config_json=config_json,
        snapshot=freeze(
            run_id="run-1",
            plugin_id=agent.plugin_id,
            agent=agent,
            asked=asked_by(manifest),
            identity=event.identity(),
        ),
        circumstances=Circumstances(**(around | circumstances)),
    )


def test_context_tells_the_event_and_the_run() -> None:
    event = an_event(
        time=Timestamp(seconds=5),
        subject=event_pb2.Subject(type="message", id="m", data_json='{"id": 9007199254740993}'),
        raw_ref=event_pb2.RawEventRef(storage_key="k", size_bytes=2**62, sha256=b"0" * 32),
        data_json='{"n": 9007199254740993}',
        adapter_extra_json='{"extra": 1}',
        metadata={"launcher_type": "group", "launcher_id": "g1"},
        delivery=event_pb2.DeliveryContext(surface="console", max_message_characters=2**31 - 1),
    )
    context, left_out = built(event)
    envelope = event.envelope
    assert left_out == 0
    assert (context.run_id, context.agent_id, context.binding_id) == ("run-1", "helper", "messages")
    assert (context.session_key, context.config_json) == ("session", CONFIG)
    assert context.trigger.type == "message.received"
    assert context.trigger.source == event_pb2.EVENT_SOURCE_PLATFORM
    assert context.trigger.time.ToDatetime(NOON.tzinfo) == NOON
    assert context.event.event_id == "event-1"
    assert context.event.source_event_name == "GroupMessage"
    assert (context.event.time, context.event.raw_ref) == (envelope.time, envelope.raw_ref)
    assert context.event.data_json == '{"n": 9007199254740993}'
    assert (context.actor, context.subject) == (envelope.actor, envelope.subject)
    assert (context.input, context.delivery) == (envelope.input, envelope.delivery)
    assert context.adapter_json == '{"extra": 1}'
    assert dict(context.metadata) == dict(envelope.metadata)
    assert context.conversation == context_pb2.Conversation(
        conversation_id="room",
        thread_id="topic",
        launcher_type="group",
        launcher_id="g1",
        sender_id="ann",
        bot_id="desk",
        workspace_id="acme",
    )


def test_what_the_event_does_not_have_is_absent() -> None:
    event = an_event(
        conversation_id="", thread_id="", actor=None, input=None, type="schedule.triggered"
    )
    context, _ = built(event)
    there = {field.name for field, _ in (*context.ListFields(), *context.event.ListFields())}
    absent = {"conversation", "actor", "subject", "adapter_json", "time", "raw_ref", "data_json"}
    assert not there & absent
    # Nothing turns it into a message.
    assert context.input == event_pb2.EventInput()
    assert not context.context.HasField("event_position")
    # Required ones are there all the same.
    assert context.delivery.surface == "api"
    assert context.HasField("input")
    assert context.HasField("state")


@given(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"])))
@settings(max_examples=50, deadline=None)
def test_numbers_and_texts_come_through_as_they_are(number: int, text: str) -> None:
    data = f'{{"n": {number}}}'
    event = an_event(
        data_json=data,
        input=event_pb2.EventInput(text=text, message_chain_json=data),
        conversation_id=f"-{text[:10]}",
    )
    context, _ = built(event, config_json=data)
    assert (context.event.data_json, context.config_json) == (data, data)
    assert (context.input.text, context.input.message_chain_json) == (text, data)
    assert context.conversation.conversation_id == f"-{text[:10]}"


def test_no_history_is_inlined_however_much_there_is() -> None:
    context, _ = built(latest_position=1_000_000)
    access = context.context
    assert access.inline_policy.mode == context_pb2.INLINE_MODE_CURRENT_EVENT
    assert access.inline_policy.delivered_count == 1
    assert access.has_history_before
    assert context.ByteSize() < 2000
    assert not {"messages", "bootstrap", "history"} & {
        field.name for field in context.DESCRIPTOR.fields
    }


def test_history_is_pointed_at_by_the_item_before_this_event() -> None:
    access = built(latest_position=41)[0].context
    assert access.latest_cursor == Cursors.of(an_event().conversation_key).encode(41)
    assert access.event_position == 42
    assert (access.conversation_id, access.thread_id) == ("room", "topic")
    first = built()[0].context
    assert (first.latest_cursor, first.has_history_before) == ("", False)
    assert first.event_position == 1


def test_apis_that_are_available_are_those_that_are_granted() -> None:
    agent = an_agent(state_scopes=frozenset({Scope.RUNNER}))
    granted = built(agent=agent)[0].context.available_apis
    assert all(getattr(granted, field.name) for field in granted.DESCRIPTOR.fields)
    nothing = built(agent=an_agent(state_enabled=False), manifest=manifest_pb2.RunnerManifest())[
        0
    ].context.available_apis
    assert [field.name for field, _ in nothing.ListFields()] == ["prompt"]


def test_resources_are_the_projection_of_the_rights() -> None:
    agent = an_agent(actions=frozenset({"message.send", "group.kick"}))
    resources = built(agent=agent)[0].resources
    assert list(resources.platform_actions) == ["message.send"]
    assert set(resources.storage) == {
        manifest_pb2.STORAGE_AREA_PLUGIN,
        manifest_pb2.STORAGE_AREA_BINDING,
    }


def _pictures() -> event_pb2.EventInput:
    picture = types_pb2.InlineContent(data=b"x", mime_type="image/png")
    return event_pb2.EventInput(
        text="look",
        parts=[
            types_pb2.ContentPart(text="look"),
            types_pb2.ContentPart(inline=picture),
            types_pb2.ContentPart(url=types_pb2.UrlContent(url="https://example.org/a.png")),
            types_pb2.ContentPart(text=""),
        ],
        attachments=[types_pb2.ArtifactRef(artifact_id="a")],
    )


def test_runner_that_takes_text_only_is_handed_text_only_and_the_event_stays_whole() -> None:
    event = an_event(input=_pictures())
    context, left_out = built(event, manifest=manifest_pb2.RunnerManifest())
    assert left_out == 3
    assert [part.text for part in context.input.parts] == ["look", ""]
    assert not context.input.attachments
    assert context.input.text == "look"
    assert event.envelope.input == _pictures()


def test_runner_that_takes_more_than_text_is_handed_all_of_it() -> None:
    context, left_out = built(an_event(input=_pictures()))
    assert left_out == 0
    del context.input.attachments[0].permissions[:]
    assert context.input == _pictures()


@pytest.mark.parametrize(
    "granted",
    [
        (),
        (types_pb2.ARTIFACT_PERMISSION_METADATA,),
        (types_pb2.ARTIFACT_PERMISSION_METADATA, types_pb2.ARTIFACT_PERMISSION_READ),
    ],
)
def test_files_say_what_the_run_may_do_with_them(
    granted: tuple[types_pb2.ArtifactPermission.ValueType, ...],
) -> None:
    words = {types_pb2.ArtifactPermission.Name(each).rpartition("_")[2] for each in granted}
    manifest = manifest_pb2.RunnerManifest(
        capabilities=manifest_pb2.RunnerCapabilities(multimodal_input=True),
        permissions=manifest_pb2.RunnerPermissions(
            artifacts=[
                manifest_pb2.ArtifactAccess.Value(f"ARTIFACT_ACCESS_{word}") for word in words
            ]
        ),
    )
    ref = types_pb2.ArtifactRef(artifact_id="a", permissions=[types_pb2.ARTIFACT_PERMISSION_READ])
    said = event_pb2.EventInput(parts=[types_pb2.ContentPart(artifact=ref)], attachments=[ref])
    event = an_event(input=said)
    context, _ = built(event, manifest=manifest)
    assert tuple(context.input.attachments[0].permissions) == granted
    assert tuple(context.input.parts[0].artifact.permissions) == granted
    # The stored event says what its readers may do, whatever one run may.
    assert event.envelope.input == said


def test_deadline_is_told_as_a_time_and_as_a_duration_or_not_at_all() -> None:
    deadline = NOON + timedelta(seconds=90)
    runtime = built(agent=an_agent(timeout_seconds=90.0), deadline=deadline)[0].runtime
    assert runtime.deadline.ToDatetime(NOON.tzinfo) == deadline
    assert runtime.timeout.ToTimedelta() == timedelta(seconds=90)
    assert (runtime.host_id, runtime.host_version, runtime.attempt) == ("host", "1.2", 1)
    assert (runtime.protocol_version, runtime.trace_id) == ("1", "0" * 31 + "1")
    endless = built(agent=an_agent(timeout_seconds=0.0))[0].runtime
    assert not endless.HasField("deadline")
    assert not endless.HasField("timeout")


@pytest.mark.parametrize(
    ("seconds", "nanoseconds"), [(0.0, 0), (0.25, 250_000_000), (1e-9, 1), (300.0, 300 * 10**9)]
)
def test_durations_are_exact_to_the_nanosecond(seconds: float, nanoseconds: int) -> None:
    assert duration(seconds).ToNanoseconds() == nanoseconds
