"""HostAPI takes a run's token with the token of the instance that has the run, and no other."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from runmesh.v1 import gateway_pb2, host_api_pb2

from tests.integration.host.calls import (
    END,
    Answer,
    Caller,
    Metadata,
    collect,
    collect_until,
    say,
    scripted,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.refusals import refused
from tests.integration.host.rpcs import rpcs_of

HOST_API = list(rpcs_of(host_api_pb2.DESCRIPTOR.services_by_name["HostAPIService"]))
GET_STATE = next(rpc for rpc in HOST_API if str(rpc) == "GetState")


@dataclass(frozen=True, slots=True)
class Access:
    """What a runner was given.

    Attributes:
        run: The run's token.
        instance: The instance's token.
    """

    run: str
    instance: str

    def metadata(self, *, run: str | None = None, instance: str | None = None) -> Metadata:
        """The two as a runner sends them, with one of them replaced; empty leaves it out."""
        run = self.run if run is None else run
        instance = self.instance if instance is None else instance
        pairs = (("authorization", f"Bearer {run}" if run else ""), ("runmesh-instance", instance))
        return tuple(pair for pair in pairs if pair[1])


@dataclass(slots=True)
class LiveRun:
    """A run that waits.

    Attributes:
        access: What its runner was given.
        answer: What it said so far.
        call: Its stream.
        go: The file that lets it end.
    """

    access: Access
    answer: Answer
    call: Any
    go: Path

    async def end(self) -> Answer:
        """Lets it end, and returns all that it said."""
        self.go.touch()
        return await collect(self.call, self.answer)


async def code_of(call: Awaitable[object]) -> str:
    """How a call ends."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


@asynccontextmanager
async def live_run(caller: Caller, agent_id: str, go: Path) -> AsyncIterator[LiveRun]:
    call = caller.open(scripted({"tell": "access"}, {"await": str(go)}, say("."), END), agent_id)
    answer = await collect_until(call, lambda so_far: bool(so_far.results))
    told = json.loads(answer.shown)
    try:
        yield LiveRun(Access(told["runToken"], told["instanceToken"]), answer, call, go)
    finally:
        go.touch()  # noqa: ASYNC240 - it takes microseconds


async def test_both_tokens_of_a_run_under_way_are_let_in_and_no_others(
    caller: Caller, host: HostProcess, tmp_path: Path
) -> None:
    async with (
        live_run(caller, "scripted", tmp_path / "mine") as mine,
        live_run(caller, "scripted", tmp_path / "beside") as beside,
        live_run(caller, "other", tmp_path / "other") as other,
    ):
        access = mine.access
        assert access.instance == beside.access.instance != other.access.instance
        assert len({access.run, beside.access.run, other.access.run}) == 3
        good = [access.metadata(), beside.access.metadata(), other.access.metadata()]
        bad = {
            "nothing": (),
            "no run token": access.metadata(run=""),
            "no instance token": access.metadata(instance=""),
            "wrong run token": access.metadata(run="rmr_" + "A" * 43),
            "wrong instance token": access.metadata(instance="rmi_" + "A" * 43),
            "another plugin's instance": access.metadata(instance=other.access.instance),
            "another plugin's run": access.metadata(run=other.access.run),
            "tokens the wrong way round": access.metadata(run=access.instance, instance=access.run),
            "an API key": access.metadata(run=host.key),
            "a run token in capitals": access.metadata(run=access.run.upper()),
            "no scheme": (("authorization", access.run), ("runmesh-instance", access.instance)),
        }
        for rpc in HOST_API:
            for metadata in good:
                # Whatever an empty request is told: it is not that its tokens do not hold.
                told = await code_of(rpc.call(caller.channel, metadata))
                assert told != "UNAUTHENTICATED", str(rpc)
            refusals = await asyncio.gather(
                *(refused(rpc.call(caller.channel, metadata)) for metadata in bad.values())
            )
            for name, refusal in zip(bad, refusals, strict=True):
                assert refusal.code == refusal.reason == "UNAUTHENTICATED", (str(rpc), name)
            # Nobody learns which of the two was wrong.
            assert len({refusal.message for refusal in refusals}) == 1
        for run in (mine, beside, other):
            assert (await run.end()).ended.status == gateway_pb2.RUN_STATUS_COMPLETED


@pytest.mark.parametrize("ending", ["by itself", "by a caller", "by its runner's loss"])
async def test_token_dies_with_its_run(caller: Caller, tmp_path: Path, ending: str) -> None:
    async with live_run(caller, "other", tmp_path / "go") as run:
        assert (await refused(GET_STATE.call(caller.channel, run.access.metadata()))).code == (
            "INVALID_ARGUMENT"
        )
        if ending == "by a caller":
            await caller.cancel(run.answer.run_id)
        elif ending == "by its runner's loss":
            crash = await caller.dispatch(scripted({"exit": 1}), "other")
            assert crash.failure == "runner.crashed"
        answer = await run.end()
        assert answer.items[-1] == "ended"
        refusal = await refused(GET_STATE.call(caller.channel, run.access.metadata()))
        assert refusal.code == refusal.reason == "UNAUTHENTICATED"


async def test_tokens_are_nowhere_to_be_read(
    caller: Caller, host: HostProcess, tmp_path: Path
) -> None:
    async with live_run(caller, "scripted", tmp_path / "go") as run:
        kept = [path for path in host.data.rglob("*") if path.is_file()]
        for path in kept:
            content = path.read_bytes()
            # The runner said its run's token out loud; nobody but it knows the other run's.
            assert run.access.instance.encode() not in content or path.name.startswith("runmesh.db")
        assert run.access.run not in host.log()
        assert run.access.instance not in host.log()
