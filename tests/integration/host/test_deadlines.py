"""Deadlines: kept by the host, known to the runner, and absent where there is none."""

import asyncio
import json
import time
from pathlib import Path

import pytest
from runmesh.v1 import gateway_pb2

from tests.integration.host.calls import END, Answer, Caller, collect, collect_until, say, scripted
from tests.integration.host.refusals import refused
from tests.integration.host.test_run_tokens import GET_STATE, Access
from tests.integration.host.waiting import eventually

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
TIMED_OUT = gateway_pb2.RUN_STATUS_TIMED_OUT
# A machine that is busy with something else may be late once, not each time.
ATTEMPTS = 4


async def timed_out(caller: Caller, *steps: dict[str, object], note: Path) -> tuple[Answer, float]:
    """Runs a script past its agent's deadline; returns the answer and how late it was heard."""
    call = caller.open(scripted({"tell": "access"}, *steps, note=note), "brief")
    answer = await collect_until(call, lambda so_far: bool(so_far.shown))
    told = json.loads(answer.shown)
    access = Access(told["runToken"], told["instanceToken"])
    answer = await collect_until(
        call, lambda so_far: so_far.results[-1].HasField("run_failed"), answer
    )
    heard_at = time.time()
    refusal = await refused(GET_STATE.call(caller.channel, access.metadata()))
    assert refusal.code == "UNAUTHENTICATED"
    answer = await collect(call, answer)
    return answer, heard_at - answer.ended.deadline.ToNanoseconds() / 1e9


@pytest.mark.parametrize("step", [{"hang": True}, {"sleep": 3600}], ids=["deaf", "asleep"])
async def test_runner_past_its_deadline_is_cut_off_at_once(
    caller: Caller, tmp_path: Path, step: dict[str, object]
) -> None:
    note = tmp_path / "note"
    late = []
    for _ in range(ATTEMPTS):
        answer, seconds = await timed_out(caller, step, note=note)
        assert answer.ended.status == TIMED_OUT
        assert answer.failure == "runner.timeout"
        assert answer.kinds == ["message_delta", "message_completed", "run_failed"]
        assert answer.results[-2].message_completed.incomplete
        assert answer.ended.deadline.ToNanoseconds() - answer.ended.started_at.ToNanoseconds() == (
            1_000_000_000
        )
        assert seconds > -0.05
        late.append(seconds)
        if seconds <= 0.25:
            break
    assert min(late) <= 0.25
    if "sleep" in step:
        await eventually(lambda: "cancelled" in note.read_text())


async def test_deadline_reaches_the_runner_three_ways(caller: Caller) -> None:
    answer = await caller.dispatch(scripted({"tell": "time"}, END), "brief")
    assert answer.ended.status == COMPLETED
    told = json.loads(answer.text)
    assert told["request"] == 1.0
    # gRPC counts a call in its own ticks, which may stand a little apart.
    assert 0.3 < told["call"] < 1.1
    assert told["context"] is True


async def test_run_without_a_deadline_has_none_anywhere(caller: Caller, tmp_path: Path) -> None:
    go = tmp_path / "go"
    call = caller.open(
        scripted({"tell": "time"}, {"await": str(go)}, say(" and on"), END), "endless"
    )
    answer = await collect_until(call, lambda so_far: bool(so_far.shown))
    assert json.loads(answer.shown) == {"request": None, "call": None, "context": False}
    # Longer than the deadline of its neighbour.
    await asyncio.sleep(1.1)
    assert (await caller.get(answer.run_id)).status == gateway_pb2.RUN_STATUS_RUNNING
    go.touch()
    answer = await collect(call, answer)
    assert answer.ended.status == COMPLETED
    assert not answer.ended.HasField("deadline")
    assert answer.shown.endswith(" and on")


async def test_time_spent_waiting_does_not_count(caller: Caller) -> None:
    answer = await caller.dispatch(scripted(say("x"), END), "brief")
    run = answer.ended
    assert run.deadline.ToNanoseconds() == run.started_at.ToNanoseconds() + 1_000_000_000
