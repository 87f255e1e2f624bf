"""Callers that go away in the middle: what becomes of their runs, and of what they held."""

from pathlib import Path

import grpc.aio
import pytest
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import gateway_pb2

from tests.integration.host.calls import (
    END,
    Caller,
    calling,
    collect_until,
    say,
    scripted,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.processes import open_files
from tests.integration.host.waiting import eventually

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
CANCELLED = gateway_pb2.RUN_STATUS_CANCELLED
CANCEL = gateway_pb2.ON_DISCONNECT_CANCEL
CONTINUE = gateway_pb2.ON_DISCONNECT_CONTINUE


@pytest.mark.parametrize(
    "on_disconnect",
    [gateway_pb2.ON_DISCONNECT_UNSPECIFIED, CONTINUE],
    ids=["unset", "continue"],
)
async def test_run_goes_on_without_its_caller_and_all_of_it_can_be_read(
    caller: Caller, tmp_path: Path, on_disconnect: gateway_pb2.OnDisconnect.ValueType
) -> None:
    go, note = tmp_path / "go", tmp_path / "note"
    call = caller.open(
        scripted(say("seen, "), {"await": str(go)}, say("unseen"), END, note=note),
        "scripted",
        on_disconnect=on_disconnect,
    )
    seen = await collect_until(call, lambda so_far: so_far.shown == "seen, ")
    call.cancel()
    go.touch()
    rest = await caller.watch(seen.run_id, seen.results[-1].sequence)
    assert rest.ended.status == COMPLETED
    rest.check_numbers(seen.results[-1].sequence)
    assert rest.messages == ["seen, unseen"]
    assert note.read_text().split() == ["called", "ended"]


@pytest.mark.parametrize("agent_id", ["scripted", "polite"])
async def test_run_is_cancelled_with_its_caller_where_that_was_asked_for(
    caller: Caller, tmp_path: Path, agent_id: str
) -> None:
    note = tmp_path / "note"
    call = caller.open(
        scripted(say("seen"), {"sleep": 3600}, note=note), agent_id, on_disconnect=CANCEL
    )
    seen = await collect_until(call, lambda so_far: so_far.shown == "seen")
    call.cancel()
    rest = await caller.watch(seen.run_id)
    assert rest.ended.status == CANCELLED
    assert rest.messages == ["seen"]
    assert "went away" in rest.ended.failure.message
    stopped = "cancelled" if agent_id == "scripted" else "interrupted"
    await eventually(lambda: stopped in note.read_text())


@pytest.mark.parametrize("ends_with_caller", [False, True])
async def test_deadline_of_a_call_is_the_runs_only_where_that_was_asked_for(
    caller: Caller, tmp_path: Path, ends_with_caller: bool
) -> None:
    go, note = tmp_path / "go", tmp_path / "note"
    event = scripted(say("a"), {"await": str(go)}, say("b"), END, note=note)
    on_disconnect = CANCEL if ends_with_caller else CONTINUE
    call = caller.open(event, "scripted", timeout=0.5, on_disconnect=on_disconnect)
    seen = await collect_until(call, lambda so_far: bool(so_far.results))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    if ends_with_caller:
        ended = (await caller.watch(seen.run_id)).ended
        assert ended.status == CANCELLED
        assert ended.ended_at.ToNanoseconds() - ended.created_at.ToNanoseconds() < 3e9
        await eventually(lambda: "cancelled" in note.read_text())
    else:
        go.touch()
        assert (await caller.watch(seen.run_id)).text == "ab"


async def test_connection_that_is_cut_leaves_nothing_behind(
    caller: Caller, host: HostProcess
) -> None:
    async def leave() -> None:
        async with calling(host.addresses["grpc"], host.key) as leaving:
            call = leaving.open(
                scripted(say("x"), {"sleep": 3600}), "scripted", on_disconnect=CANCEL
            )
            seen = await collect_until(call, lambda so_far: bool(so_far.results))
            watcher = leaving.watching(seen.run_id)
            await collect_until(watcher, lambda so_far: bool(so_far.items))
            # Nobody says goodbye: the channel is closed under both calls.

    async def idle() -> bool:
        asked = await caller.admin.GetHost(admin_pb2.GetHostRequest(), metadata=caller.metadata)
        return asked.active_runs == 0

    def descriptors() -> int:
        return len(list(open_files(host.pid)))

    for _ in range(3):
        await leave()
    await eventually(idle)
    before = descriptors()
    for _ in range(20):
        await leave()
    await eventually(idle)
    await eventually(lambda: descriptors() <= before + 2)
