"""Calling what a model wants called: at the same time, in rounds, and whatever goes wrong."""

import asyncio
import json
from typing import Any

import pytest
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import types_pb2
from runmesh.v1.context_pb2 import RunContext
from runmesh.v1.types_pb2 import ChatMessage, ContentPart, ToolCall

from runner_sdk.errors import (
    FieldViolation,
    HostUnavailable,
    InvalidArgument,
    NotFound,
    RuntimeFailure,
)
from runner_sdk.results import assistant_message
from runner_sdk.testing import StandInHost, tool_call
from tests.unit.local_agent.agents import CONFIG, PRIMARY, agent, logged, questions, texts


def calls(*wanted: tuple[str, str, str], text: str = "") -> ChatMessage:
    """An answer that wants tools called: id, name and arguments of each."""
    message = assistant_message([text] if text else [])
    for call_id, name, arguments in wanted:
        message.tool_calls.append(ToolCall(id=call_id, name=name, arguments_json=arguments))
    return message


def results_told(host: StandInHost, question: int = -1) -> list[ChatMessage]:
    """The results of tools in what a model was asked."""
    messages = questions(host)[question].messages
    return [each for each in messages if each.role == types_pb2.CHAT_ROLE_TOOL]


def text_of(message: ChatMessage) -> str:
    return "".join(part.text for part in message.parts)


async def test_model_is_told_of_the_runs_tools_and_of_what_they_answer() -> None:
    async with agent() as host:
        host.add_tool("clock", lambda parameters: f"nine in {parameters['city']}")
        host.add_model(PRIMARY, tool_call("clock", city="Bern"), "It is nine.")
        outcome = await host.run("time?", config=CONFIG)

    assert outcome.text == "It is nine."
    first, second = questions(host)
    assert [tool.name for tool in first.tools] == ["clock"]
    assert second.messages[-2].tool_calls[0].arguments_json == '{"city":"Bern"}'
    assert text_of(second.messages[-1]) == "nine in Bern"
    assert second.messages[-1].tool_call_id == "call-1"
    started = outcome.of_kind("tool_call_started")[0]
    assert (started.tool_name, started.parameters_json) == ("clock", '{"city":"Bern"}')
    completed = outcome.of_kind("tool_call_completed")[0]
    assert (completed.call_id, completed.preview) == ("call-1", "nine in Bern")
    assert completed.error_code == ""


async def test_calls_of_one_answer_run_at_the_same_time_and_are_told_in_order() -> None:
    both_run = asyncio.Event()
    running: list[str] = []

    async def call(request: api.CallToolRequest) -> api.CallToolResponse:
        running.append(request.tool_name)
        if len(running) == 2:
            both_run.set()
        await both_run.wait()
        if request.tool_name == "first":
            await asyncio.sleep(0.05)  # so that it ends last
        return api.CallToolResponse(parts=[ContentPart(text=f"{request.tool_name} done")])

    async with agent() as host:
        host.add_tool("first", "")
        host.add_tool("second", "")
        host.answer("CallTool", call)
        host.add_model(PRIMARY, calls(("a", "first", "{}"), ("b", "second", "{}")), "Done.")
        outcome = await host.run("go", config=CONFIG)

    assert outcome.text == "Done."
    told = [(each.tool_call_id, text_of(each)) for each in results_told(host)]
    assert told == [("a", "first done"), ("b", "second done")]
    assert {each.call_id for each in outcome.of_kind("tool_call_completed")} == {"a", "b"}


async def test_no_more_calls_run_at_once_than_are_allowed() -> None:
    running, most = 0, 0

    async def call(_: api.CallToolRequest) -> api.CallToolResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return api.CallToolResponse(parts=[ContentPart(text="ok")])

    wanted = [(f"call-{number}", "clock", "{}") for number in range(40)]
    async with agent() as host:
        host.add_tool("clock", "")
        host.answer("CallTool", call)
        host.add_model(PRIMARY, calls(*wanted), "Done.")
        await host.run("go", config=CONFIG)

    assert len(results_told(host)) == 40
    assert 2 <= most <= 8


@pytest.mark.parametrize("second", ["It is nine.", "\nIt is nine.", "\n\n\nIt is nine."])
async def test_what_is_said_between_calls_is_part_of_the_one_message(second: str) -> None:
    async with agent() as host:
        host.add_tool("clock", "nine")
        host.add_model(PRIMARY, calls(("a", "clock", "{}"), text="Let me look."), second)
        outcome = await host.run("time?", config=CONFIG)

    assert outcome.text == outcome.streamed_text == "Let me look.\n\nIt is nine."
    assert len(outcome.messages) == 1


async def test_failing_tool_goes_back_to_the_model() -> None:
    def fail(_: Any) -> str:
        raise ValueError("no such city")

    async with agent() as host:
        host.add_tool("clock", fail)
        host.add_model(PRIMARY, tool_call("clock"), "I could not find out.")
        outcome = await host.run("time?", config=CONFIG)

    assert outcome.text == "I could not find out."
    assert text_of(results_told(host)[0]) == "ValueError: no such city"
    completed = outcome.of_kind("tool_call_completed")[0]
    assert (completed.error_code, completed.error_message) == (
        "tool_error",
        "ValueError: no such city",
    )


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (
            InvalidArgument(
                method="CallTool",
                reason="INVALID_ARGUMENT",
                message="the parameters break the schema",
                violations=(FieldViolation("parameters_json.city", "must be a text"),),
            ),
            "invalid_argument",
            "parameters_json.city: must be a text",
        ),
        (NotFound(method="CallTool", reason="NOT_FOUND", message="gone"), "not_found", "clock"),
        (
            RuntimeFailure(method="CallTool", reason="RUNTIME_ERROR", message="it broke"),
            "runtime_error",
            "it broke",
        ),
    ],
)
async def test_refused_call_goes_back_to_the_model(error: Any, code: str, told: str) -> None:
    async with agent() as host:
        host.add_tool("clock", "")
        host.answer("CallTool", error)
        host.add_model(PRIMARY, tool_call("clock"), "Sorry.")
        outcome = await host.run("time?", config=CONFIG)

    assert outcome.text == "Sorry."
    assert told in text_of(results_told(host)[0])
    assert outcome.of_kind("tool_call_completed")[0].error_code == code


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"city": "Be', "not valid JSON"),
        ("[1]", "must be a JSON object"),
        ('{"at": NaN}', "NaN is not JSON"),
        ('{"at": 1e400}', "too large a number"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a":' * 70 + "1" + "}" * 70, "nested too deeply"),
    ],
    ids=["cut", "list", "NaN", "large", "endless", "deep"],
)
async def test_malformed_arguments_are_told_and_the_tool_is_not_called(
    arguments: str, told: str
) -> None:
    async with agent() as host:
        host.add_tool("clock", "nine")
        host.add_model(PRIMARY, calls(("a", "clock", arguments)), "Sorry.")
        outcome = await host.run("time?", config=CONFIG)

    assert outcome.text == "Sorry."
    assert told in text_of(results_told(host)[0])
    assert not [call for call in host.calls if call.method == "CallTool"]
    # What goes back to a provider is an object, since some of them read it.
    given_back = questions(host)[1].messages[-2].tool_calls[0].arguments_json
    assert json.loads(given_back)["malformed_arguments"] == arguments[:2000]


async def test_empty_arguments_are_none() -> None:
    async with agent() as host:
        host.add_tool("clock", json.dumps)
        host.add_model(PRIMARY, calls(("a", "clock", "")), "Done.")
        await host.run("time?", config=CONFIG)

    assert text_of(results_told(host)[0]) == "{}"


async def test_arguments_keep_their_digits_and_their_halves_of_characters_do_no_harm() -> None:
    arguments = '{"id":9007199254740993,"f":1.0,"text":"\\ud83d"}'
    async with agent() as host:
        host.add_tool("clock", "nine")
        host.add_model(PRIMARY, calls(("a", "clock", arguments)), "Done.")
        outcome = await host.run("time?", config=CONFIG)

    assert outcome.text == "Done."
    request = next(call.request for call in host.calls if call.method == "CallTool")
    assert request.parameters_json == '{"id":9007199254740993,"f":1.0,"text":"\\ufffd"}'


async def test_tool_that_there_is_not_is_told_with_those_that_there_are() -> None:
    async with agent() as host:
        host.add_tool("clock", "nine")
        host.add_tool("calendar", "Monday")
        host.add_model(PRIMARY, tool_call("watch"), "Sorry.")
        outcome = await host.run("time?", config=CONFIG)

    assert text_of(results_told(host)[0]) == (
        "There is no tool 'watch'. The tools are: clock, calendar."
    )
    assert outcome.of_kind("tool_call_completed")[0].error_code == "not_found"
    assert not [call for call in host.calls if call.method == "CallTool"]


async def test_after_the_last_round_the_model_must_answer() -> None:
    async with agent() as host:
        host.add_tool("clock", "nine")
        host.add_model(PRIMARY, tool_call("clock"), tool_call("clock"), "It is nine.")
        outcome = await host.run("time?", config={**CONFIG, "max_tool_rounds": 2})

    assert outcome.text == "It is nine."
    assert [each.tool_choice for each in questions(host)] == ["", "", "none"]
    assert outcome.completed is not None
    assert outcome.completed.finish_reason == "tool_limit"


async def test_model_that_only_calls_tools_is_stopped_and_people_are_told() -> None:
    async with agent() as host:
        host.add_tool("clock", "nine")
        host.add_model(PRIMARY, tool_call("clock"))
        outcome = await host.run("time?", config={**CONFIG, "max_tool_rounds": 3})

    assert len(questions(host)) == 4
    assert len(outcome.of_kind("tool_call_completed")) == 3
    assert "3 rounds" in outcome.text
    assert outcome.completed is not None
    assert outcome.completed.finish_reason == "tool_limit"


async def test_without_rounds_no_tool_is_offered() -> None:
    async with agent() as host:
        host.add_tool("clock", "nine")
        host.add_model(PRIMARY, "I do not know.")
        await host.run("time?", config={**CONFIG, "max_tool_rounds": 0})

    assert not questions(host)[0].tools


async def test_model_that_does_not_call_tools_is_offered_none() -> None:
    async with agent() as host:
        host.add_tool("clock", "nine")
        host.add_model(PRIMARY, "I do not know.", abilities=["vision"])
        outcome = await host.run("time?", config=CONFIG)

    assert not questions(host)[0].tools
    assert any("does not call tools" in line for line in logged(outcome))


async def test_large_result_is_told_by_its_beginning_and_its_artifact() -> None:
    async with agent() as host:
        ref = host.add_artifact(b"x" * 1000, type="tool_result")
        host.add_tool("clock", api.CallToolResponse(preview="xxx", artifact=ref))
        host.add_model(PRIMARY, tool_call("clock"), "Much.")
        outcome = await host.run("time?", config=CONFIG)

    told = text_of(results_told(host)[0])
    assert told.startswith("xxx\n")
    assert ref.artifact_id in told
    assert "1000 bytes" in told
    assert outcome.of_kind("tool_call_completed")[0].preview == told


async def test_picture_that_a_tool_makes_is_shown_to_people_and_named_to_the_model() -> None:
    async with agent() as host:
        ref = host.add_artifact(b"png", type="image", name="plot.png", mime_type="image/png")
        host.add_tool("plot", api.CallToolResponse(parts=[ContentPart(artifact=ref)]))
        host.add_model(PRIMARY, tool_call("plot"), "There it is.")
        outcome = await host.run("plot", config=CONFIG)

    assert outcome.of_kind("artifact_created")[0].ref.artifact_id == ref.artifact_id
    assert '"plot.png"' in text_of(results_told(host)[0])


async def test_large_parameters_are_shown_by_their_beginning() -> None:
    async with agent() as host:
        host.add_tool("write", "written")
        host.add_model(PRIMARY, tool_call("write", text="x" * 1_500_000), "Done.")
        outcome = await host.run("write", config=CONFIG)

    assert outcome.text == "Done."
    started = outcome.of_kind("tool_call_started")[0]
    assert not started.HasField("parameters_json")
    assert len(started.preview) == 500


async def test_tool_whose_server_has_just_started_is_asked_for_once_more() -> None:
    asked = 0

    def detail(_: api.GetToolDetailRequest) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            return HostUnavailable(
                method="GetToolDetail",
                reason="UNAVAILABLE",
                message="it has not told of its tools yet",
                retry_after_seconds=0.01,
            )
        definition = types_pb2.ToolDefinition(name="late", parameters_schema_json="{}")
        return api.GetToolDetailResponse(definition=definition, type="mcp")

    async with agent() as host:
        given = RunContext()
        given.resources.tools.add(name="late", type="mcp")
        host.answer("GetToolDetail", detail)
        host.add_model(PRIMARY, "Hello.")
        await host.run("hello", config=CONFIG, context=given)

    assert [tool.name for tool in questions(host)[0].tools] == ["late"]


async def test_tool_that_cannot_be_described_costs_itself_only() -> None:
    async with agent() as host:
        host.add_tool("clock", "nine")
        given = RunContext()
        given.resources.tools.add(name="broken", type="mcp")  # its schema did not come along
        gone = NotFound(method="GetToolDetail", reason="NOT_FOUND", message="its server is away")
        host.answer("GetToolDetail", gone)
        host.add_model(PRIMARY, "Hello.")
        outcome = await host.run("hello", config=CONFIG, context=given)

    assert [tool.name for tool in questions(host)[0].tools] == ["clock"]
    assert any("broken is left out" in line for line in logged(outcome))
    assert texts(questions(host)[0])[-1] == "hello"
