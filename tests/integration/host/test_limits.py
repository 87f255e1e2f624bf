"""A host with small limits: what is too much is refused or ended, and nothing else suffers."""

import asyncio
from functools import partial
from pathlib import Path

import grpc.aio
import pytest
from runmesh.v1 import event_pb2, gateway_pb2

from tests.integration.host.calls import (
    END,
    Answer,
    Caller,
    collect,
    collect_until,
    message,
    say,
    scripted,
    whole,
)
from tests.integration.host.refusals import Refusal, refusal_of, refused
from tests.integration.host.waiting import eventually

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
FAILED = gateway_pb2.RUN_STATUS_FAILED
CANCELLED = gateway_pb2.RUN_STATUS_CANCELLED
QUEUED = gateway_pb2.RUN_STATUS_QUEUED
# More than every buffer between a runner and a caller that does not read.
MESSAGES, PIECES, PIECE_BYTES = 6, 20, 50_000
MESSAGE_BYTES = PIECES * PIECE_BYTES


def flood() -> event_pb2.EventEnvelope:
    return scripted({"flood": [MESSAGES, PIECES, PIECE_BYTES]}, END)


async def test_caller_that_does_not_read_is_ended_and_its_run_goes_on(narrow: Caller) -> None:
    call = narrow.open(flood(), "scripted")
    seen = await collect_until(call, lambda so_far: bool(so_far.items))
    run = await _ended(narrow, seen.run_id)
    assert run.status == COMPLETED
    # All that time the caller did not read; now it finds out.
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await collect(call, seen)
    refusal = refusal_of(caught.value)
    assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "OVERLOADED")
    assert refusal.retry_after_seconds is not None
    assert "WatchRun" in refusal.message
    seen.check_numbers()
    last_seen = seen.results[-1].sequence
    assert refusal.facts["last_sequence"] == str(last_seen)
    rest = await narrow.watch(seen.run_id, last_seen)
    rest.check_numbers(last_seen)
    assert rest.ended == run
    assert rest.results[-1].HasField("run_completed")
    assert rest.results[-1].sequence == run.last_sequence
    # Nothing is missing and nothing is doubled.
    completed = [
        each.message_completed.message.message_id
        for each in (*seen.results, *rest.results)
        if each.HasField("message_completed")
    ]
    assert completed == [f"m{number}" for number in range(MESSAGES)]
    assert {len(text) for text in rest.messages} == {MESSAGE_BYTES}


async def test_slow_caller_slows_its_own_run_and_no_other(narrow: Caller) -> None:
    call = narrow.open(flood(), "scripted")
    slow = await collect_until(call, lambda so_far: bool(so_far.items))
    answers = [await narrow.dispatch(message(f"quick {number}")) for number in range(10)]
    assert {each.ended.status for each in answers} == {COMPLETED}
    call.cancel()
    await _ended(narrow, slow.run_id)


async def test_caller_that_reads_slowly_but_reads_gets_everything(narrow: Caller) -> None:
    call = narrow.open(flood(), "scripted")
    answer = await collect_until(call, lambda so_far: bool(so_far.items))
    while answer.items[-1] != "ended":
        # Much less than the patience, and often enough to fill every buffer.
        await asyncio.sleep(0.01)
        had = len(answer.items)
        answer = await collect_until(call, partial(_has_more, than=had), answer)
    answer.check_numbers()
    assert answer.ended.status == COMPLETED
    assert len(answer.shown) == MESSAGES * MESSAGE_BYTES
    assert len(answer.messages) == MESSAGES


def _has_more(answer: Answer, than: int) -> bool:
    return len(answer.items) > than


async def test_watcher_that_falls_behind_is_ended_and_can_go_on(
    narrow: Caller, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    event = scripted({"await": str(go)}, {"flood": [MESSAGES, PIECES, PIECE_BYTES]}, END)
    run = await narrow.submit(event, "scripted")
    watcher = narrow.watching(run.run_id)
    seen = await collect_until(watcher, lambda so_far: bool(so_far.items))
    go.touch()
    await _ended(narrow, run.run_id)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await collect(watcher, seen)
    refusal = refusal_of(caught.value)
    assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "OVERLOADED")
    after = int(refusal.facts["last_sequence"])
    assert after == (seen.results[-1].sequence if seen.results else 0)
    rest = await narrow.watch(run.run_id, after)
    rest.check_numbers(after)
    assert len(seen.messages) + len(rest.messages) == MESSAGES


async def _ended(caller: Caller, run_id: str) -> gateway_pb2.Run:
    async def ended() -> bool:
        return (await caller.get(run_id)).HasField("ended_at")

    await eventually(ended)
    return await caller.get(run_id)


async def test_quiet_stream_carries_bookmarks(narrow: Caller, tmp_path: Path) -> None:
    go = tmp_path / "go"
    call = narrow.open(scripted(say("a"), {"await": str(go)}, say("b"), END), "scripted")
    answer = await collect_until(call, lambda so_far: len(so_far.bookmarks) >= 2)
    watcher = narrow.watching(answer.run_id)
    watched = await collect_until(watcher, lambda so_far: len(so_far.bookmarks) >= 2)
    go.touch()
    answer, watched = await collect(call, answer), await collect(watcher, watched)
    assert set(answer.bookmarks) == set(watched.bookmarks) == {1}
    assert answer.shown == watched.shown == "ab"


async def test_run_beyond_the_limit_waits_and_beyond_the_line_is_refused(
    narrow: Caller, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    event = scripted(say("x"), {"await": str(go)}, END)
    active = [narrow.open(event, "scripted") for _ in range(3)]
    answers = [await collect_until(each, lambda so_far: so_far.shown == "x") for each in active]
    waiting = [await narrow.submit(event, "scripted") for _ in range(2)]
    for run in waiting:
        assert (await narrow.get(run.run_id)).status == QUEUED
    started = asyncio.get_running_loop().time()
    refusals: list[Refusal] = [
        await refused(call)
        for call in (narrow.dispatch(event, "scripted"), narrow.submit(event, "scripted"))
    ]
    assert asyncio.get_running_loop().time() - started < 2
    for refusal in refusals:
        assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "OVERLOADED")
        assert refusal.retry_after_seconds
    # A run that waits can be cancelled, and its place in the line is free again.
    cancelled = await narrow.cancel(waiting[0].run_id)
    assert cancelled.status == CANCELLED
    assert not cancelled.HasField("started_at")
    third = await narrow.submit(event, "scripted")
    go.touch()
    for call, answer in zip(active, answers, strict=True):
        assert (await collect(call, answer)).ended.status == COMPLETED
    for run in (waiting[1], third):
        watched = await narrow.watch(run.run_id)
        assert watched.ended.status == COMPLETED
        assert watched.ended.HasField("queued_at")


async def test_runner_that_is_nowhere_fails_the_run_after_a_wait(narrow: Caller) -> None:
    answer = await narrow.dispatch(message(), "nowhere")
    assert answer.ended.status == FAILED
    assert answer.failure == "runner.unavailable"
    assert answer.ended.failure.retryable
    assert "plugin:acme/nowhere/default" in answer.ended.failure.message
    assert answer.kinds == ["run_failed"]


async def test_runner_that_does_not_heed_an_interrupt_is_cut_off_after_the_grace(
    narrow: Caller,
) -> None:
    call = narrow.open(
        scripted(say("x"), {"sleep": 3600}, on_interrupt=[{"sleep": 3600}]), "polite"
    )
    answer = await collect_until(call, lambda so_far: so_far.shown == "x")
    run = await narrow.cancel(answer.run_id)
    assert run.status == CANCELLED
    assert (await collect(call, answer)).ended == run


async def test_numbers_go_on_beyond_a_reserved_block(narrow: Caller) -> None:
    steps = [{"send": [{"messageDelta": {"text": "z"}} for _ in range(50)]} for _ in range(20)]
    answer = await narrow.dispatch(scripted(*steps, {"send": [whole("z")]}, END), "scripted")
    answer.check_numbers()
    assert answer.ended.status == COMPLETED
    assert answer.ended.last_sequence == 1002
