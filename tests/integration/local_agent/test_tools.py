"""The local agent with tools of a real tool server, and models that a server serves."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from runmesh.admin.v1 import admin_pb2, explain_pb2

from tests.integration.local_agent.agents import PRIMARY, called, local_agent, model
from tests.integration.models.torture_server import TortureServer, chunk, said, streamed

_SERVER = Path(__file__).parents[1] / "tools" / "servers" / "stateful.py"


def _desk(note: Path) -> admin_pb2.ToolServer:
    command = admin_pb2.ToolCommand(command=sys.executable, args=[str(_SERVER), str(note)])
    return admin_pb2.ToolServer(id="desk", command=command)


def _asked(server: TortureServer) -> list[Any]:
    """What models were sent to be answered, in order."""
    return [each.body for each in server.requests if each.body.get("stream")]


async def test_tool_is_called_and_its_result_is_used(server: TortureServer, tmp_path: Path) -> None:
    server.answer(called("desk__count", '{"by": 3}', text="Let me count."), said("Three."))
    desk = _desk(tmp_path / "note")
    async with local_agent(
        model(PRIMARY, server), tool_servers=[desk], tools=["desk__count"]
    ) as host:
        outcome = await host.dispatch("count by three")

    assert outcome.text == outcome.streamed_text == "Let me count.\n\nThree."
    first, second = _asked(server)
    assert [each["function"]["name"] for each in first["tools"]] == ["desk__count"]
    assert "by" in first["tools"][0]["function"]["parameters"]["properties"]
    result = second["messages"][-1]
    assert (result["role"], result["tool_call_id"]) == ("tool", "call-1")
    assert "3" in result["content"]
    kinds = [result.WhichOneof("payload") for result in outcome.results]
    assert kinds.index("tool_call_started") < kinds.index("tool_call_completed")


async def test_two_calls_of_one_answer_are_told_in_their_order(
    server: TortureServer, tmp_path: Path
) -> None:
    calls = [
        {
            "index": place,
            "id": f"call-{place}",
            "function": {"name": "desk__echo", "arguments": json.dumps({"value": value})},
        }
        for place, value in enumerate(["first", 9007199254740993])
    ]
    server.answer(streamed(chunk(tool_calls=calls), chunk(finish="tool_calls")), said("Both."))
    desk = _desk(tmp_path / "note")
    async with local_agent(
        model(PRIMARY, server), tool_servers=[desk], tools=["desk__echo"]
    ) as host:
        outcome = await host.dispatch("say both")

    assert outcome.text == "Both."
    told = [each["content"] for each in _asked(server)[1]["messages"] if each["role"] == "tool"]
    assert ["first" in told[0], "9007199254740993" in told[1]] == [True, True]


async def test_tools_that_fail_are_told_to_the_model(server: TortureServer, tmp_path: Path) -> None:
    server.answer(
        called("desk__fail", '{"reason": "no paper"}'),
        called("desk__fail", '{"reason": 7}'),
        called("desk__fail", '{"reason": "no pa'),
        called("desk__leave", "{}"),
        said("It does not work."),
    )
    desk = _desk(tmp_path / "note")
    async with local_agent(
        model(PRIMARY, server), tool_servers=[desk], tools=["desk__fail", "desk__leave"]
    ) as host:
        outcome = await host.dispatch("print")

    assert outcome.text == "It does not work.", outcome.run
    told = [each["content"] for each in _asked(server)[-1]["messages"] if each["role"] == "tool"]
    assert len(told) == 4
    assert "fail" in told[0]
    assert "reason" in told[1]
    assert "not valid JSON" in told[2]
    ends = [
        result.tool_call_completed.error_code
        for result in outcome.results
        if result.HasField("tool_call_completed")
    ]
    assert all(ends)


async def test_large_result_is_told_by_its_beginning(server: TortureServer, tmp_path: Path) -> None:
    server.answer(called("desk__large", '{"size": 3000000}'), said("Much."))
    desk = _desk(tmp_path / "note")
    async with local_agent(
        model(PRIMARY, server, context_window_tokens=200_000),
        tool_servers=[desk],
        tools=["desk__large"],
    ) as host:
        outcome = await host.dispatch("how much?")

    assert outcome.text == "Much.", outcome.run
    told = _asked(server)[1]["messages"][-1]["content"]
    assert len(told) < 100_000
    assert "3000000 bytes" in told


async def test_cancelled_tool_leaves_a_conversation_that_goes_on(
    server: TortureServer, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    server.answer(called("desk__wait", '{"seconds": 600}', text="Wait."), said("Here I am again."))
    async with local_agent(
        model(PRIMARY, server), tool_servers=[_desk(note)], tools=["desk__wait"]
    ) as host:
        run = await host.submit("wait for me")
        async with asyncio.timeout(50):
            async for result in host.results(run.run_id):
                if result.HasField("tool_call_started"):
                    break
            while "waiting" not in note.read_text():  # noqa: ASYNC110 - a file tells
                await asyncio.sleep(0.05)
        ended = await host.cancel(run.run_id)
        again = await host.dispatch("are you there?")
        async with asyncio.timeout(50):
            while "cancelled" not in note.read_text():  # noqa: ASYNC110 - a file tells
                await asyncio.sleep(0.05)

    assert ended.failure.code == "cancelled"
    assert again.text == "Here I am again.", again.run
    messages = _asked(server)[-1]["messages"]
    wanted = {call["id"] for each in messages for call in each.get("tool_calls", ())}
    assert wanted == {each["tool_call_id"] for each in messages if each["role"] == "tool"}
    assert messages[-1] == {"role": "user", "content": "are you there?"}


async def test_replay_without_side_effects_tells_the_model_the_same(
    server: TortureServer, tmp_path: Path
) -> None:
    server.answer(
        called("desk__count", "{}"), said("One."), called("desk__count", "{}"), said("1.")
    )
    note = tmp_path / "note"
    async with local_agent(
        model(PRIMARY, server), tool_servers=[_desk(note)], tools=["desk__count"]
    ) as host:
        outcome = await host.dispatch("count")
        request = explain_pb2.ReplayRunRequest(run_id=outcome.run.run_id)
        ended = [
            each.ended
            async for each in host.admin.ReplayRun(request, metadata=host.metadata)
            if each.HasField("ended")
        ]
        again = await host.watch(ended[0].run.run_id)

    assert (outcome.text, again.text) == ("One.", "1."), again.run
    asked = _asked(server)
    assert asked[3]["messages"][-1] == asked[1]["messages"][-1]
