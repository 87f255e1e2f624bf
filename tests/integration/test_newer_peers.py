"""Runners and callers of a later version: what this host does not know is passed on or left out."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import discovery_pb2, event_pb2, gateway_pb2, result_pb2, types_pb2

from host_service.testing import RealHost
from runner_sdk import AgentRunner, Manifest, Result, RunContext, agent_runner
from runner_sdk.testing import Unchecked

# Field 1000, a number, and field 1001, a text: no message of this version has either.
NEW_NUMBER = b"\xc0\x3e\x01"
NEW_TEXT = b"\xca\x3e\x05later"
NEW_ENUM_NUMBER = 999


def with_news(message: Any, *inner: Message) -> Any:
    """Returns a message that has, as its own and within, fields of a later version."""
    for each in (message, *inner):
        each.MergeFromString(NEW_NUMBER + NEW_TEXT)
    return message


def has_news(message: Message) -> bool:
    unknown: Any = UnknownFieldSet(message)
    return {each.field_number for each in unknown} == {1000, 1001}


def sends(*results: result_pb2.RunResult) -> AgentRunner:
    """A runner that sends results as they are, numbered, and then ends well."""

    @agent_runner
    async def newer(ctx: RunContext) -> AsyncIterator[Any]:
        end = result_pb2.RunResult(run_completed=result_pb2.RunCompleted(finish_reason="stop"))
        for number, result in enumerate((*results, end), start=1):
            sent = result_pb2.RunResult.FromString(result.SerializeToString())
            sent.run_id, sent.sequence = ctx.run_id, number
            yield Unchecked((sent,))

    return newer


def said(*parts: types_pb2.ContentPart, **fields: Any) -> result_pb2.RunResult:
    message = types_pb2.ChatMessage(role=types_pb2.CHAT_ROLE_ASSISTANT, parts=parts)
    message.MergeFrom(types_pb2.ChatMessage(**fields))
    return result_pb2.RunResult(message_completed=result_pb2.MessageCompleted(message=message))


ACME = Manifest.minimal("acme/newer")
TEXT = types_pb2.ContentPart(text="hello")


async def test_fields_of_results_are_passed_on_live_and_again() -> None:
    delta = result_pb2.RunResult(message_delta=result_pb2.MessageDelta(text="hello"))
    message = said(TEXT)
    called = result_pb2.RunResult(
        tool_call_started=result_pb2.ToolCallStarted(call_id="1", tool_name="look")
    )
    inner = message.message_completed.message
    runner = sends(
        with_news(delta, delta.message_delta),
        with_news(message, message.message_completed, inner, inner.parts[0]),
        with_news(called, called.tool_call_started),
    )
    async with RealHost(runner, manifest=ACME) as host:
        outcome = await host.dispatch("hi")
        again = await host.watch(outcome.run.run_id)

    assert outcome.status == "COMPLETED"
    assert outcome.warnings == []
    assert outcome.streamed_text == outcome.text == "hello"
    for results in (outcome.results[1:], again.results):
        completed, started, _ = results
        inner = completed.message_completed.message
        for each in (completed, completed.message_completed, inner, inner.parts[0]):
            assert has_news(each)
        assert has_news(started)
        assert has_news(started.tool_call_started)
    assert has_news(outcome.results[0])
    assert has_news(outcome.results[0].message_delta)


async def test_content_of_a_new_kind_is_passed_on() -> None:
    part = types_pb2.ContentPart()
    async with RealHost(sends(said(TEXT, with_news(part))), manifest=ACME) as host:
        outcome = await host.dispatch("hi")

    assert outcome.status == "COMPLETED"
    assert [has_news(part) for part in outcome.messages[0].parts] == [False, True]
    assert outcome.text == "hello"


async def test_enum_numbers_of_results_are_passed_on_with_a_warning() -> None:
    odd = said(TEXT, role=NEW_ENUM_NUMBER)
    logged = result_pb2.RunResult(log=result_pb2.LogLine(text="a line"))
    asked = result_pb2.RunResult(
        action_requested=result_pb2.ActionRequested(action="message.recall", idempotency_key="1")
    )
    logged.log.level = NEW_ENUM_NUMBER  # type: ignore[assignment]
    asked.action_requested.approval_hint = NEW_ENUM_NUMBER  # type: ignore[assignment]
    async with RealHost(sends(odd, logged, asked), manifest=ACME) as host:
        outcome = await host.dispatch("hi")
        again = await host.watch(outcome.run.run_id)

    assert outcome.status == "COMPLETED"
    told = [each.message for each in outcome.run.warnings if each.code == "unknown_value"]
    assert [message.split(" has ")[0].split(": ")[1] for message in told] == [
        "message_completed.message.role",
        "log.level",
        "action_requested.approval_hint",
    ]
    for results in (outcome.results, again.results):
        assert results[0].message_completed.message.role == NEW_ENUM_NUMBER
        assert results[1].log.level == NEW_ENUM_NUMBER
        assert results[2].action_requested.approval_hint == NEW_ENUM_NUMBER


async def test_state_of_a_new_scope_is_refused_with_a_warning() -> None:
    updated = result_pb2.RunResult(state_updated=result_pb2.StateUpdated(key="k", value_json="1"))
    updated.state_updated.scope = NEW_ENUM_NUMBER  # type: ignore[assignment]
    async with RealHost(sends(updated, said(TEXT)), manifest=ACME) as host:
        outcome = await host.dispatch("hi")

    assert outcome.status == "COMPLETED"
    assert len(outcome.warnings) == 1
    assert outcome.results[0].state_updated.scope == NEW_ENUM_NUMBER


async def test_result_of_a_new_type_is_left_out_with_a_warning() -> None:
    unknown = with_news(result_pb2.RunResult())
    async with RealHost(sends(said(TEXT), unknown, said(TEXT)), manifest=ACME) as host:
        outcome = await host.dispatch("hi")

    assert outcome.status == "COMPLETED"
    assert outcome.warnings == ["unknown_result"]
    assert outcome.text == "hellohello"


async def test_manifest_may_say_what_this_host_does_not_know(
    caplog: pytest.LogCaptureFixture,
) -> None:
    manifest = Manifest.minimal("acme/newer")
    runner = manifest.runners["default"]
    with_news(runner, runner.capabilities, runner.permissions)
    runner.permissions.models.append(NEW_ENUM_NUMBER)  # type: ignore[arg-type]
    field = runner.config_schema.add(name="mood", type="mood-ring")
    field.label.text["en_US"] = "Mood"
    with caplog.at_level(logging.WARNING):
        async with RealHost(sends(said(TEXT)), manifest=manifest, config={"mood": "new"}) as host:
            outcome = await host.dispatch("hi")
            listed = await host.discovery.ListRunners(
                discovery_pb2.ListRunnersRequest(), metadata=host.metadata
            )
    assert outcome.status == "COMPLETED"
    (shown,) = listed.runners
    for each in (shown, shown.capabilities, shown.permissions):
        assert has_news(each)
    assert NEW_ENUM_NUMBER in shown.permissions.models
    for words in (
        "has the number 999",
        "config_schema[0].type 'mood-ring' is not known",
        "capabilities has field 1000",
        "permissions has field 1000",
    ):
        assert any(words in message for message in caplog.messages), words


async def test_event_of_a_newer_caller_runs_and_is_kept_as_it_came() -> None:
    @agent_runner
    async def repeats(ctx: RunContext) -> Result:
        return ctx.reply(ctx.text)

    async with RealHost(repeats, manifest=ACME) as host:
        event = host.event("hi", event_id="e1", source=NEW_ENUM_NUMBER)
        event.delivery.surface = "api"
        part = event.input.parts.add()
        with_news(event, event.input, event.actor, event.delivery, part)
        request = gateway_pb2.DispatchRequest(event=event)
        request.on_disconnect = NEW_ENUM_NUMBER  # type: ignore[assignment]
        request.follow_up = NEW_ENUM_NUMBER  # type: ignore[assignment]
        with_news(request)
        responses = [
            response async for response in host.gateway.Dispatch(request, metadata=host.metadata)
        ]
        again = await host.gateway.SubmitEvent(
            with_news(gateway_pb2.SubmitEventRequest(event=event)), metadata=host.metadata
        )
        kept = await host.stores.events.get("", "", f"source_{NEW_ENUM_NUMBER}", "e1")

    assert responses[-1].ended.status == gateway_pb2.RUN_STATUS_COMPLETED
    assert again.run.duplicate
    assert kept is not None
    logged = event_pb2.EventEnvelope.FromString(kept.envelope)
    for each in (logged, logged.input, logged.actor, logged.delivery, logged.input.parts[0]):
        assert has_news(each)
    assert logged.source == NEW_ENUM_NUMBER


async def test_request_of_a_newer_operator_is_answered() -> None:
    async with RealHost(sends(said(TEXT)), manifest=ACME) as host:
        agent = with_news(admin_pb2.Agent(id="a", runner_id="plugin:acme/newer/default"))
        await host.apply(agent)
        request = with_news(admin_pb2.GetHostRequest())
        told = await host.admin.GetHost(request, metadata=host.metadata)
        outcome = await host.dispatch("hi", agent_id="a")

    assert told.host_id
    assert outcome.text == "hello"
