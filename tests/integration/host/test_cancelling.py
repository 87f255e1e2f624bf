"""CancelRun: the run ends as cancelled whatever its runner does, and keeps what was said."""

import asyncio
from pathlib import Path

from runmesh.v1 import gateway_pb2

from stores import Stores
from tests.integration.host.calls import (
    END,
    Caller,
    collect,
    collect_until,
    delta,
    message,
    say,
    scripted,
    whole,
)
from tests.integration.host.waiting import eventually

CANCELLED = gateway_pb2.RUN_STATUS_CANCELLED
COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
FOREVER = {"sleep": 3600}


async def test_cancelled_run_ends_at_once_and_keeps_what_it_said(
    caller: Caller, stores: Stores, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    call = caller.open(
        scripted(say("so far"), FOREVER, note=note, conversation_id="cancelled", bot_id="c"),
        agent_id="scripted",
    )
    answer = await collect_until(call, lambda so_far: so_far.shown == "so far")
    run = await caller.cancel(answer.run_id, "changed my mind")
    answer = await collect(call, answer)
    assert run.status == CANCELLED
    assert answer.ended == run
    assert run.failure.code == "cancelled"
    assert run.failure.message == "changed my mind"
    assert answer.kinds == ["message_delta", "message_completed", "run_failed"]
    assert answer.messages == ["so far"]
    assert answer.results[-2].message_completed.incomplete
    await eventually(lambda: "cancelled" in note.read_text())
    page = await stores.transcript.page(run.conversation_key)
    assert (page.items[0].role, page.items[0].text) == ("assistant", "so far")
    assert page.items[0].incomplete


async def test_runner_that_can_be_interrupted_has_its_last_word(
    caller: Caller, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    last = whole("so far, and goodbye")
    failed = {"runFailed": {"code": "cancelled", "message": "stopped"}}
    call = caller.open(
        scripted(say("so far"), FOREVER, on_interrupt=[{"send": [last, failed]}], note=note),
        agent_id="polite",
    )
    answer = await collect_until(call, lambda so_far: so_far.shown == "so far")
    run = await caller.cancel(answer.run_id)
    answer = await collect(call, answer)
    assert run.status == CANCELLED
    assert answer.messages == ["so far, and goodbye"]
    assert answer.kinds == ["message_delta", "message_completed", "run_failed"]
    assert note.read_text().split() == ["called", "interrupted", "ended"]


async def test_interrupted_run_is_cancelled_even_if_its_runner_says_it_ended_well(
    caller: Caller,
) -> None:
    call = caller.open(
        scripted(FOREVER, on_interrupt=[{"send": [delta("done anyway")]}, END]), agent_id="polite"
    )
    answer = await collect_until(call, lambda so_far: bool(so_far.items))
    await _until_running(caller, answer.run_id)
    run = await caller.cancel(answer.run_id)
    answer = await collect(call, answer)
    assert run.status == CANCELLED
    assert answer.failure == "cancelled"
    assert answer.text == "done anyway"
    assert answer.kinds[-1] == "run_failed"


async def test_run_that_has_ended_stays_as_it_ended(caller: Caller) -> None:
    ran = await caller.dispatch(message("over"))
    assert await caller.cancel(ran.run_id, "too late") == ran.ended


async def test_cancelling_twice_at_once_is_answered_twice(caller: Caller) -> None:
    run = await caller.submit(scripted(FOREVER), "scripted")
    first, second = await asyncio.gather(caller.cancel(run.run_id), caller.cancel(run.run_id))
    assert first == second
    assert first.status == CANCELLED


async def test_other_runs_go_on(caller: Caller, tmp_path: Path) -> None:
    go = tmp_path / "go"
    call = caller.open(scripted(say("stays "), {"await": str(go)}, say("whole"), END), "scripted")
    answer = await collect_until(call, lambda so_far: so_far.shown == "stays ")
    runs = [await caller.submit(scripted(FOREVER), "scripted") for _ in range(5)]
    ended = await asyncio.gather(*(caller.cancel(run.run_id) for run in runs))
    assert {run.status for run in ended} == {CANCELLED}
    go.touch()
    answer = await collect(call, answer)
    assert answer.ended.status == COMPLETED
    assert answer.shown == "stays whole"


async def _until_running(caller: Caller, run_id: str) -> None:
    async def runs() -> bool:
        return (await caller.get(run_id)).status == gateway_pb2.RUN_STATUS_RUNNING

    await eventually(runs)
