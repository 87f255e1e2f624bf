"""Runners that break the contract: the run ends by the fault's name and keeps what was shown."""

import base64
import os
import signal
from pathlib import Path

import pytest
from runmesh.v1 import gateway_pb2

from stores import Stores
from tests.integration.host.calls import (
    END,
    Answer,
    Caller,
    collect,
    collect_until,
    completed,
    delta,
    message,
    say,
    scripted,
    whole,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.processes import Process, descendants
from tests.integration.host.waiting import eventually

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
FAILED = gateway_pb2.RUN_STATUS_FAILED
MIB = 1024 * 1024
BEFORE = "Before the fault. "


def check_end(answer: Answer, status: gateway_pb2.RunStatus.ValueType) -> None:
    """Fails unless an answer ended as any must: one terminal result, last, as the run has it."""
    answer.check_numbers()
    assert answer.items[-1] == "ended"
    assert answer.ended.status == status
    ends = [kind for kind in answer.kinds if kind in {"run_completed", "run_failed"}]
    assert ends == [answer.kinds[-1]]
    assert answer.ended.last_sequence == answer.results[-1].sequence
    if status == FAILED:
        failed = answer.results[-1].run_failed
        failure = answer.ended.failure
        assert (failed.code, failed.message) == (failure.code, failure.message)
        for inside in ("Traceback", "File ", ".py", "/tmp"):
            assert inside not in failure.message


# fault, failure code, a word of its message, warnings
ECHO_FAULTS = [
    ("error", "echo.asked", "asks for a failure", []),
    ("exception", "runner.error", "", []),
    ("no_terminal", "runner.protocol", "without run_completed or run_failed", []),
    ("duplicate_sequence", "", "", ["sequence_repeated"]),
    ("gap", "", "", ["sequence_gap", "sequence_step_back"]),
    ("wrong_run_id", "runner.protocol", "'another-run'", []),
    ("oversized", "runner.protocol", "the limit is 1048576", []),
    ("unknown_type", "", "", ["unknown_result"]),
    ("after_terminal", "", "", ["after_terminal", "after_terminal"]),
]


@pytest.mark.parametrize(
    ("fault", "code", "word", "warnings"), ECHO_FAULTS, ids=[each[0] for each in ECHO_FAULTS]
)
async def test_fault_ends_the_run_by_its_name_or_is_warned_of(
    caller: Caller, stores: Stores, fault: str, code: str, word: str, warnings: list[str]
) -> None:
    event = message("hello", bot_id="faults", conversation_id=fault)
    answer = await caller.dispatch(event, f"echo-{fault}")
    check_end(answer, FAILED if code else COMPLETED)
    assert answer.failure == code
    assert word in answer.ended.failure.message
    assert answer.warnings[: len(warnings)] == warnings
    # What was shown is kept as a message, marked as incomplete where the run failed.
    assert answer.shown.startswith(BEFORE)
    assert answer.messages == [answer.shown]
    said = next(each for each in answer.results if each.HasField("message_completed"))
    assert said.message_completed.incomplete == bool(code)
    page = await stores.transcript.page(answer.ended.conversation_key, newest_first=False)
    assert [(each.role, each.text) for each in page.items] == [
        ("user", "hello"),
        ("assistant", answer.shown),
    ]
    assert page.items[1].incomplete == bool(code)
    assert await caller.get(answer.run_id) == answer.ended
    # The instance goes on with other runs.
    assert (await caller.dispatch(message("still there"))).text == "still there"


async def test_results_with_odd_numbers_are_delivered_once_each(caller: Caller) -> None:
    repeated = await caller.dispatch(message(), "echo-duplicate_sequence")
    assert repeated.shown == f"{BEFORE}x"
    gap = await caller.dispatch(message(), "echo-gap")
    assert gap.shown == f"{BEFORE}xx"
    # The host numbers what it delivers: nobody else sees the runner's gaps.
    assert [each.sequence for each in gap.results] == list(range(1, len(gap.results) + 1))


async def test_failure_of_the_runners_own_keeps_all_that_it_said(caller: Caller) -> None:
    failed = {"code": "acme.full", "message": "no", "retryable": True, "details": {"free": "0"}}
    answer = await caller.dispatch(scripted({"send": [{"runFailed": failed}]}), "scripted")
    check_end(answer, FAILED)
    failure = answer.ended.failure
    assert (failure.code, failure.message, failure.retryable) == ("acme.full", "no", True)
    assert dict(failure.details) == {"free": "0"}


async def test_what_comes_before_a_fault_in_the_same_frame_is_not_lost(caller: Caller) -> None:
    answer = await caller.dispatch(
        scripted(
            {"send": [delta("said, "), whole("said, and whole"), delta("more"),
                      delta("", runId="another-run")]},
        ),
        "scripted",
    )  # fmt: skip
    check_end(answer, FAILED)
    assert answer.failure == "runner.protocol"
    assert answer.messages == ["said, and whole", "more"]


async def test_type_that_nobody_knows_ends_the_run_only_if_it_must_be_understood(
    caller: Caller,
) -> None:
    ignored = await caller.dispatch(
        scripted(say("a"), {"send": [{"unknown": True}]}, say("b"), END), "scripted"
    )
    check_end(ignored, COMPLETED)
    assert ignored.warnings == ["unknown_result"]
    assert ignored.messages == ["ab"]
    needed = await caller.dispatch(
        scripted(say("a"), {"send": [{"unknown": True, "mustUnderstand": True}]}, say("b"), END),
        "scripted",
    )
    check_end(needed, FAILED)
    assert needed.failure == "runner.protocol"
    assert needed.messages == ["a"]
    known = await caller.dispatch(
        scripted({"send": [delta("known", mustUnderstand=True)]}, END), "scripted"
    )
    check_end(known, COMPLETED)


async def test_result_of_the_largest_size_passes_and_one_byte_more_does_not(
    caller: Caller,
) -> None:
    async def answered(size: int) -> Answer:
        return await caller.dispatch(scripted(say("x" * size), END), "scripted")

    small = await answered(1000)
    around = len(small.results[0].SerializeToString()) - 1000
    # The runner does not send first_sequence, and the lengths of larger sizes take more bytes.
    fits = MIB - around - 32
    assert len((await answered(fits)).shown) == fits
    too_large = await answered(MIB)
    check_end(too_large, FAILED)
    assert too_large.failure == "runner.protocol"
    assert str(MIB) in too_large.ended.failure.message


@pytest.mark.parametrize(
    ("frame", "word"),
    [
        (b"\x0a\xff\xff", "no RunResponse"),
        (b"GET / HTTP/1.1\r\n\r\n", "no RunResponse"),
        (18 * MIB, "over the limit"),
    ],
    ids=["cut", "something else", "18 MiB"],
)
async def test_frame_that_is_none_ends_the_run(
    caller: Caller, frame: bytes | int, word: str
) -> None:
    raw = base64.b64encode(frame).decode() if isinstance(frame, bytes) else frame
    answer = await caller.dispatch(scripted(say(BEFORE), {"raw": raw}, END), "scripted")
    check_end(answer, FAILED)
    assert answer.failure == "runner.protocol"
    assert word in answer.ended.failure.message
    assert answer.messages == [BEFORE]


async def test_empty_frames_do_no_harm(caller: Caller) -> None:
    answer = await caller.dispatch(
        scripted({"send": []}, say("a"), {"raw": ""}, say("b"), END), "scripted"
    )
    check_end(answer, COMPLETED)
    assert answer.shown == "ab"
    assert answer.warnings == []


def replacing(old: bytes, new: bytes) -> dict[str, list[str]]:
    """The part of a step that puts bytes into a frame which a script cannot have."""
    return {"replace": [base64.b64encode(each).decode() for each in (old, new)]}


async def test_text_that_stores_cannot_hold_is_mended_with_a_warning(caller: Caller) -> None:
    call = {
        "toolCallStarted": {"callId": "1", "toolName": "t", "parametersJson": '{"a": "XXXXXX"}'}
    }
    answer = await caller.dispatch(
        scripted(
            {"send": [delta("aXb")], **replacing(b"X", b"\0")},
            {"send": [delta("cXXX")], **replacing(b"XXX", b"\xed\xa0\x80")},
            {"send": [call], **replacing(b"XXXXXX", b"\\u0000")},
            END,
        ),
        "scripted",
    )  # fmt: skip
    check_end(answer, COMPLETED)
    assert answer.messages == ["a\ufffdbc\ufffd"]
    assert answer.warnings == ["text_repaired"] * 3
    started = next(each for each in answer.results if each.HasField("tool_call_started"))
    assert "\\u0000" not in started.tool_call_started.parameters_json


@pytest.mark.parametrize("status", ["INTERNAL", "UNKNOWN", "INVALID_ARGUMENT"])
async def test_call_that_ends_with_a_status_is_the_runners_error(
    caller: Caller, status: str
) -> None:
    answer = await caller.dispatch(scripted(say(BEFORE), {"status": status}), "scripted")
    check_end(answer, FAILED)
    assert answer.failure == "runner.error"
    assert status in answer.ended.failure.message
    assert answer.messages == [BEFORE]


@pytest.mark.parametrize("status", ["UNAVAILABLE", "CANCELLED"])
async def test_call_that_ends_as_one_whose_server_stops_is_a_lost_runner(
    caller: Caller, status: str
) -> None:
    answer = await caller.dispatch(scripted(say(BEFORE), {"status": status}), "scripted")
    check_end(answer, FAILED)
    assert answer.failure == "runner.unavailable"
    assert answer.ended.failure.retryable
    assert answer.messages == [BEFORE]


async def test_run_that_says_nothing_is_a_failure_unless_it_means_to(caller: Caller) -> None:
    nothing = await caller.dispatch(message(), "echo-empty")
    check_end(nothing, FAILED)
    assert nothing.failure == "runner.empty_output"
    silent = {"send": [{"runCompleted": {"finishReason": "silent"}}]}
    check_end(await caller.dispatch(scripted(silent), "scripted"), COMPLETED)
    check_end(await caller.dispatch(scripted(END, type="message.recalled"), "scripted"), COMPLETED)
    thinking = {"send": [{"messageDelta": {"reasoningText": "hm"}}, completed()]}
    assert (await caller.dispatch(scripted(thinking), "scripted")).failure == "runner.empty_output"
    message_only = {"runCompleted": {"finishReason": "stop", "message": {
        "role": "CHAT_ROLE_ASSISTANT", "parts": [{"text": "at last"}]}}}  # fmt: skip
    answer = await caller.dispatch(scripted({"send": [message_only]}), "scripted")
    check_end(answer, COMPLETED)
    assert answer.messages == ["at last"]


async def test_crash_in_the_middle_fails_the_run_and_the_plugin_is_back_soon(
    caller: Caller, host: HostProcess
) -> None:
    answer = await caller.dispatch(message(), "echo-crash")
    check_end(answer, FAILED)
    failure = answer.ended.failure
    assert failure.code == "runner.crashed"
    assert failure.retryable
    assert "70" in failure.message
    assert answer.messages == [BEFORE]
    # The next run waits for the process that is started in its place.
    again = await caller.dispatch(message("back"))
    assert again.text == "back"
    assert again.ended.instance_id != answer.ended.instance_id
    waited = again.ended.started_at.ToNanoseconds() - answer.ended.ended_at.ToNanoseconds()
    assert waited < 4e9
    assert again.ended.HasField("queued_at")


async def test_crash_costs_only_the_runs_of_its_own_plugin(caller: Caller, tmp_path: Path) -> None:
    go = tmp_path / "go"
    call = caller.open(scripted(say("other "), {"await": str(go)}, say("lives"), END), "scripted")
    answer = await collect_until(call, lambda so_far: so_far.shown == "other ")
    pending = [caller.open(scripted(say("x"), {"sleep": 3600}), "other") for _ in range(5)]
    for each in pending:
        await collect_until(each, lambda so_far: so_far.shown == "x")
    crash = await caller.dispatch(scripted({"exit": 9}), "other")
    assert crash.failure == "runner.crashed"
    for each in pending:
        assert (await collect(each)).failure == "runner.crashed"
    go.touch()
    assert (await collect(call, answer)).shown == "other lives"
    assert (await caller.dispatch(scripted(say("again"), END), "other")).text == "again"


@pytest.mark.supervised
async def test_a_killed_runner_is_told_with_its_signal(caller: Caller, host: HostProcess) -> None:
    call = caller.open(scripted(say("x"), {"sleep": 3600}), "other")
    answer = await collect_until(call, lambda so_far: so_far.shown == "x")
    victims = [each for each in descendants(host.pid) if _serves(each, "acme/other")]
    assert victims
    os.kill(victims[0].pid, signal.SIGKILL)
    answer = await collect(call, answer)
    assert answer.failure == "runner.crashed"
    assert "SIGKILL" in answer.ended.failure.message
    await eventually(lambda: not victims[0].is_alive)


def _serves(process: Process, plugin_id: str) -> bool:
    environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    wanted = f"RUNMESH_PLUGIN_ID={plugin_id}".encode()
    return (
        wanted in environment
        and "scripted.py" in process.command
        and "guardian" not in process.command
    )
