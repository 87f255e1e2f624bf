"""The echo runner: byte for byte what it was told, and every fault it can be told to show."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from grpc.aio import AioRpcError
from hypothesis import given, settings
from hypothesis import strategies as st
from runmesh.v1 import run_pb2
from runmesh.v1.result_pb2 import RunResult
from runmesh.v1.run_pb2_grpc import RunServiceStub

from plugins.echo.echo.main import Echo
from plugins.echo.echo.pieces import pieces
from runner_sdk import Manifest
from runner_sdk._wire import RESULT_BYTES
from runner_sdk.testing import RunOutcome, StandInHost

_FOLDER = Path(__file__).parents[3] / "plugins" / "echo"


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[StandInHost]:
    async with StandInHost(Echo()) as host:
        yield host


def test_its_manifest_is_what_the_plugin_is_known_by() -> None:
    manifest = Manifest.load(_FOLDER)

    assert manifest.plugin_id == "runmesh/echo"
    assert manifest.runners["default"].id == "plugin:runmesh/echo/default"
    assert manifest.runners["default"].capabilities.streaming
    assert manifest.runners["default"].capabilities.interrupt
    assert not manifest.runners["default"].permissions.ListFields()


@pytest.mark.parametrize(
    "text",
    [
        "hello, 世界 👩‍👩‍👧",
        "one",
        " spaces  and\n\nlines\r\n",
        "你好" * 50,
        "🇩🇪🇫🇷 e\u0301\u0302 👍🏽 ก็ 한국어 \u1112\u1161\u11ab",
        "x" * 1_100_000,
    ],
    ids=["mixed", "word", "blanks", "no spaces", "clusters", "large"],
)
async def test_what_is_said_comes_back_byte_for_byte(text: str) -> None:
    async with echo() as host:
        outcome = await host.run(text)

    assert outcome.streamed_text == text
    assert outcome.text == text
    assert outcome.completed is not None


async def test_the_message_follows_the_pieces_unless_it_is_turned_off() -> None:
    async with echo() as host:
        with_message = await host.run("a b")
        without = await host.run("a b", config={"message": False})

    assert [message.parts[0].text for message in with_message.messages] == ["a b"]
    assert without.messages == []
    assert without.text == "a b"


async def test_an_event_without_text_is_named() -> None:
    async with echo() as host:
        outcome = await host.run(None, event_type="group.member_joined")

    assert outcome.text == "Event group.member_joined, without text."


async def test_nothing_said_is_answered_by_silence() -> None:
    async with echo() as host:
        outcome = await host.run("")

    assert outcome.completed is not None
    assert (outcome.text, outcome.completed.finish_reason) == ("", "silent")


async def test_pieces_of_a_size_can_be_asked_for() -> None:
    async with echo() as host:
        outcome = await host.run("ignored", config={"repeat": 1000, "size": 40})

    assert [len(delta.text) for delta in outcome.of_kind("message_delta")] == [40] * 1000
    assert outcome.text == "x" * 40_000


async def test_delay_and_interval_are_kept() -> None:
    async with echo() as host:
        loop = asyncio.get_running_loop()
        began = loop.time()
        call = host.start("a b", config={"delay_seconds": 0.1, "interval_seconds": 0.05})
        await anext(call)
        assert loop.time() - began >= 0.095
        await call.outcome()
        assert loop.time() - began >= 0.19


async def test_it_can_be_interrupted() -> None:
    async with echo() as host:
        call = host.start("a b", config={"interval_seconds": 60})
        await anext(call)
        assert await call.interrupt()
        outcome = await call.outcome()

    assert outcome.failed is not None
    assert outcome.failed.code == "cancelled"


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        ("error", "echo.asked", "the configuration asks for a failure"),
        ("exception", "runner.error", "ValueError: the configuration asks for an exception"),
    ],
)
async def test_it_can_fail(failure: str, code: str, message: str) -> None:
    async with echo() as host:
        outcome = await host.run("hi", config={"failure": failure})

    assert outcome.failed is not None
    assert (outcome.failed.code, outcome.failed.message) == (code, message)
    assert outcome.failed.retryable is (failure == "error")


async def test_it_can_say_nothing() -> None:
    async with echo() as host:
        outcome = await host.run("hi", config={"failure": "empty"})

    assert [result.WhichOneof("payload") for result in outcome.results] == ["run_completed"]


async def _on_the_wire(failure: str) -> list[RunResult]:
    """Runs without the stand-in's checks, which these faults are made to break."""
    async with echo() as host:
        request = run_pb2.RunRequest(runner_id="plugin:runmesh/echo/default")
        request.context.run_id = "run-1"
        request.context.config_json = f'{{"failure":"{failure}"}}'
        return [
            result
            async for frame in RunServiceStub(host.channel).Run(request)
            for result in frame.results
        ]


@pytest.mark.parametrize(
    ("failure", "numbers", "kinds"),
    [
        ("no_terminal", [1], ["message_delta"]),
        ("duplicate_sequence", [1, 2, 2, 3], ["message_delta"] * 3 + ["run_completed"]),
        ("gap", [1, 5, 3, 6], ["message_delta"] * 3 + ["run_completed"]),
        ("wrong_run_id", [1, 2, 3], ["message_delta"] * 2 + ["run_completed"]),
        ("oversized", [1, 2, 3], ["message_delta"] * 2 + ["run_completed"]),
        ("unknown_type", [1, 2, 3], ["message_delta", None, "run_completed"]),
        (
            "after_terminal",
            [1, 2, 3, 4],
            ["message_delta", "run_completed", "message_delta", "run_completed"],
        ),
    ],
)
async def test_each_breach_of_the_contract_is_really_on_the_wire(
    failure: str, numbers: list[int], kinds: list[str | None]
) -> None:
    results = await _on_the_wire(failure)

    assert [result.sequence for result in results] == numbers
    assert [result.WhichOneof("payload") for result in results] == kinds
    assert (failure == "wrong_run_id") == any(result.run_id != "run-1" for result in results)
    assert (failure == "oversized") == any(result.ByteSize() > RESULT_BYTES for result in results)
    unknown = [result for result in results if result.WhichOneof("payload") is None]
    assert all(result.ByteSize() > len("run-1") + 4 for result in unknown), "has unknown fields"


@contextlib.asynccontextmanager
async def a_process() -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Starts the plugin as a host does."""
    socket = f"/tmp/runmesh-echo-test-{os.getpid()}.sock"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "echo.main"),
        cwd=_FOLDER,
        env={"PATH": os.environ["PATH"], "RUNMESH_LISTEN": f"unix:{socket}"},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process, f"unix:{socket}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_it_can_crash_its_process_after_its_first_words() -> None:
    async with a_process() as (process, address), StandInHost(address=address) as host:
        assert host.handshake.plugin_id == "runmesh/echo"
        call = host.start("hi", config={"failure": "crash"})
        first = await anext(call)
        with pytest.raises(AioRpcError):
            await call.outcome()
        assert await asyncio.wait_for(process.wait(), 5) == 70

    assert first.message_delta.text == "Before the fault. "


async def test_it_can_hang_and_ignore_its_cancellation() -> None:
    async with a_process() as (_, address), StandInHost(address=address) as host:
        call = host.start("hi", config={"failure": "hang"})
        await anext(call)
        stopped = asyncio.create_task(call.interrupt(grace_seconds=0.1))
        ended: asyncio.Task[RunOutcome] = asyncio.create_task(call.outcome())
        done, pending = await asyncio.wait({stopped, ended}, timeout=0.3)
        assert not done
        for task in pending:
            task.cancel()
        await asyncio.wait(pending)


_ALPHABET = "ab 世\n\r👩👧🇩🇪\u200d\ufe0f\u0301\U0001f3fd\u1112\u1161\u0e01\u0e47"


@given(st.text(_ALPHABET, max_size=60))
@settings(deadline=None, max_examples=100)
def test_pieces_joined_are_the_text(text: str) -> None:
    assert "".join(pieces(text)) == text


@pytest.mark.parametrize(
    "cluster",
    ["👩‍👩‍👧", "🇩🇪", "e\u0301\u0302", "👍🏽", "\r\n", "\u1112\u1161\u11ab", "ก็", "क्ष", "❤\ufe0f"],
)
def test_no_piece_ends_inside_a_character(cluster: str) -> None:
    text = (cluster * 40 + " ") * 3
    ends = {0}
    for piece in pieces(text):
        ends.add(max(ends) + len(piece))

    allowed = {0} | _boundaries(text, cluster)
    assert ends <= allowed


def _boundaries(text: str, cluster: str) -> set[int]:
    found, position = set(), 0
    while position < len(text):
        position += len(cluster) if text.startswith(cluster, position) else 1
        found.add(position)
    return found
