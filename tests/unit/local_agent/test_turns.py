"""Events without words, what people say meanwhile, and turns that are cancelled."""

import asyncio

import pytest
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import types_pb2
from runmesh.v1.context_pb2 import RunContext
from runmesh.v1.types_pb2 import ContentPart

from runner_sdk.errors import HostUnavailable
from runner_sdk.testing import tool_call
from tests.unit.local_agent.agents import CONFIG, PRIMARY, agent, logged, questions, texts


async def test_event_without_words_is_told_as_data_and_never_as_a_message() -> None:
    async with agent() as host:
        given = RunContext()
        given.event.data_json = '{"member":9007199254740993}'
        given.actor.name = "Ada"
        given.subject.type = "membership"
        host.add_model(PRIMARY, "Welcome, Ada!")
        outcome = await host.run(
            None, event_type="group.member_joined", config=CONFIG, context=given
        )

    assert outcome.text == "Welcome, Ada!"
    messages = questions(host)[0].messages
    assert all(each.role == types_pb2.CHAT_ROLE_SYSTEM for each in messages)
    told = texts(questions(host)[0])[-1]
    assert '"type": "group.member_joined"' in told
    assert 'data: {"member":9007199254740993}' in told
    assert '"name": "Ada"' in told
    assert '"membership"' in told


async def test_nothing_needs_to_be_said_about_an_event() -> None:
    async with agent() as host:
        host.add_model(PRIMARY, "")
        outcome = await host.run(None, event_type="message.recalled", config=CONFIG)

    assert outcome.completed is not None
    assert outcome.completed.finish_reason == "silent"
    assert not outcome.messages


async def test_event_of_another_type_that_says_something_is_a_message() -> None:
    async with agent() as host:
        host.add_model(PRIMARY, "Done.")
        await host.run("tidy up", event_type="api.invoked", config=CONFIG)

    last = questions(host)[0].messages[-1]
    assert last.role == types_pb2.CHAT_ROLE_USER
    assert last.parts[0].text == "tidy up"


async def test_what_is_said_during_a_round_of_tools_is_taken_up() -> None:
    called = asyncio.Event()

    async def call(_: api.CallToolRequest) -> api.CallToolResponse:
        called.set()
        await asyncio.sleep(0.05)
        return api.CallToolResponse(parts=[ContentPart(text="nine")])

    def answer(request: api.StreamModelRequest) -> str | types_pb2.ChatMessage:
        return "Nine in Bern." if "in Bern" in texts(request) else tool_call("clock")

    async with agent() as host:
        host.add_tool("clock", "")
        host.answer("CallTool", call)
        host.add_model(PRIMARY, answer)
        run = host.start("time?", config={**CONFIG, "max_tool_rounds": 50})
        reading = asyncio.create_task(run.outcome())
        await called.wait()
        said = run.steer("in Bern")
        outcome = await reading

    assert outcome.text == "Nine in Bern."
    assert run.acknowledged == [said]
    last = questions(host)[-1].messages[-1]
    assert (last.role, last.parts[0].text) == (types_pb2.CHAT_ROLE_USER, "in Bern")


async def test_what_is_said_while_the_model_answers_is_left_for_a_run_of_its_own() -> None:
    async with agent() as host:
        host.add_model(PRIMARY, "Hello.")
        run = host.start("hello", config=CONFIG)
        run.steer("and another thing")
        await run.outcome()

    assert run.acknowledged == []


async def test_broken_listening_costs_follow_up_input_only() -> None:
    async with agent() as host:
        away = HostUnavailable(method="PullSteering", reason="UNAVAILABLE", message="away")
        host.answer("PullSteering", away)
        host.add_tool("clock", lambda _: "nine")
        host.add_model(PRIMARY, *[tool_call("clock")] * 6, "Nine.")
        outcome = await host.run("time?", config=CONFIG)

    assert outcome.text == "Nine."
    assert len([line for line in logged(outcome) if "follow-up" in line]) <= 1


@pytest.mark.parametrize("way", ["interrupt", "cancel"])
async def test_cancelled_round_of_tools_ends_its_calls_and_the_next_turn_works(way: str) -> None:
    called = asyncio.Event()
    cancelled = asyncio.Event()

    async def call(request: api.CallToolRequest) -> api.CallToolResponse:
        if request.tool_name == "quick":
            return api.CallToolResponse(parts=[ContentPart(text="done")])
        called.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    wanted = tool_call("quick", call_id="a")
    wanted.parts.add().text = "Let me look."
    wanted.tool_calls.add(id="b", name="slow", arguments_json="{}")
    async with agent() as host:
        host.add_tool("quick", "")
        host.add_tool("slow", "")
        host.answer("CallTool", call)
        host.add_model(PRIMARY, wanted, "Here I am again.")
        run = host.start("look it up", config=CONFIG)
        if way == "interrupt":
            reading = asyncio.create_task(run.outcome())
            await called.wait()
            assert await run.interrupt()
            outcome = await reading
            assert outcome.failed is not None
            assert outcome.failed.code == "cancelled"
            ends = {
                each.call_id: each.error_code for each in outcome.of_kind("tool_call_completed")
            }
            assert ends == {"a": "", "b": "cancelled"}
        else:
            async for result in run:
                if result.WhichOneof("payload") == "tool_call_completed":
                    break
            await called.wait()
            run.cancel()
        await cancelled.wait()
        again = await host.run("are you there?", config=CONFIG)

    assert again.text == "Here I am again."
    messages = questions(host)[-1].messages
    answered = {each.tool_call_id for each in messages if each.role == types_pb2.CHAT_ROLE_TOOL}
    assert {call.id for each in messages for call in each.tool_calls} == answered
    assert texts(questions(host)[-1])[-1] == "are you there?"


async def test_model_is_left_at_once_when_the_run_is_cancelled() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def stream(_: api.StreamModelRequest) -> list[api.StreamModelResponse]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return []

    async with agent() as host:
        host.add_model(PRIMARY)
        host.answer("StreamModel", stream)
        run = host.start("hello", config=CONFIG)
        reading = asyncio.create_task(run.outcome())
        await asked.wait()
        await run.interrupt()
        outcome = await reading
        await left.wait()

    assert outcome.failed is not None
    assert outcome.failed.code == "cancelled"
