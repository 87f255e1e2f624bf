"""What the desk says to each message, and what it asks of its host for it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
from desk import USAGE, Desk

from runner_sdk.testing import StandInHost


@pytest.fixture
async def host() -> AsyncIterator[StandInHost]:
    async with StandInHost(Desk()) as host:
        yield host


async def test_it_counts_the_messages_of_a_conversation(host: StandInHost) -> None:
    said = [(await host.run("count", runner="desk")).text for _ in range(3)]
    assert said == [f"message {number} of this conversation" for number in (1, 2, 3)]
    assert host.state("conversation") == {"count": 3}


async def test_it_recalls_the_last_five_messages_and_nothing_of_this_one(host: StandInHost) -> None:
    assert (await host.run("recall", runner="desk")).text == "nothing yet"
    for number in range(6):
        host.add_history(f"message {number}")
    lines = (await host.run("recall", runner="desk")).text.splitlines()
    assert lines == [f"user: message {number}" for number in range(1, 6)]


async def test_it_files_the_conversation(host: StandInHost) -> None:
    host.add_history("你好 👩‍💻")
    outcome = await host.run("file notes of today.txt", runner="desk")
    content = "user: 你好 👩‍💻".encode()
    digest = hashlib.sha256(content).hexdigest()
    assert outcome.text == f"notes of today.txt, {len(content)} bytes, sha256 {digest}"
    (created,) = outcome.of_kind("artifact_created")
    assert host.artifact(created.ref) == content


async def test_it_calls_a_tool_with_the_text_as_it_is(host: StandInHost) -> None:
    host.add_tool("echo", lambda parameters: repr(parameters["value"]))
    sent = '{"value":  {"big":9007199254740993, "f":1.0}}'
    outcome = await host.run(f"tool echo {sent}", runner="desk")
    assert "9007199254740993" in outcome.text
    assert "1.0" in outcome.text
    (started,) = outcome.of_kind("tool_call_started")
    assert started.parameters_json == sent
    assert host.calls[-1].request.parameters_json == sent


async def test_it_says_which_call_was_refused_and_why(host: StandInHost) -> None:
    outcome = await host.run("tool unknown {}", runner="desk")
    assert outcome.failed is not None
    assert outcome.failed.code == "desk.refused"
    assert dict(outcome.failed.details) == {"method": "CallTool", "reason": "NOT_FOUND"}


async def test_an_interrupted_run_stops_waiting(host: StandInHost) -> None:
    assert (await host.run("wait 0.01", runner="desk")).text == "waited 0.01 s"
    call = host.start("wait 600", runner="desk")
    assert (await anext(call)).message_delta.text == "waiting"
    async with asyncio.timeout(10):
        assert await call.interrupt()
        failed = (await call.outcome()).failed
    assert failed is not None
    assert failed.code == "cancelled"


async def test_it_says_what_it_can_be_asked(host: StandInHost) -> None:
    for text in ("hello", "wait", "wait long", "file", "tool", ""):
        assert (await host.run(text, runner="desk")).text == USAGE
