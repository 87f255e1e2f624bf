"""A host's answer that is lost on its way: whoever asks again gets the run there is."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from runmesh.v1 import event_pb2, gateway_pb2

from host_service.runs.event import conversation_key
from tests.integration.host.calls import END, Caller, calling, collect, message, say, scripted
from tests.integration.host.host_process import HostProcess
from tests.integration.host.network import Network
from tests.integration.host.refusals import refused
from tests.integration.host.waiting import eventually

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
CANCELLED = gateway_pb2.RUN_STATUS_CANCELLED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
AT_ONCE = 8
RETRIES = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{"service": "runmesh.v1.GatewayService"}],
                "retryPolicy": {
                    "maxAttempts": 5,
                    "initialBackoff": "0.05s",
                    "maxBackoff": "0.5s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ]
    }
)


@pytest.fixture
async def network(host: HostProcess) -> AsyncIterator[Network]:
    """What the callers that lose their answers are connected by."""
    async with Network(host.addresses["grpc"]) as network:
        yield network


@pytest.fixture
async def far(network: Network, host: HostProcess) -> AsyncIterator[Caller]:
    """A caller beyond that network, whose connection is up."""
    async with calling(network.address, host.key) as far:
        await far.list(page_size=1)
        yield far


def an_event(name: str, note: Path) -> event_pb2.EventEnvelope:
    """An event of a conversation of its own."""
    return scripted(say("said "), say("once"), END, note=note, event_id=name, conversation_id=name)


def calls_of(note: Path) -> int:
    return note.read_text().split().count("called") if note.exists() else 0


async def runs_of(caller: Caller, name: str) -> list[gateway_pb2.Run]:
    key = conversation_key(workspace="", bot="", conversation=name, thread="")
    return list((await caller.list(conversation_key=key)).runs)


async def lose(
    network: Network, near: Caller, far: Caller, name: str, *calls: Awaitable[Any]
) -> None:
    """Loses the answers of calls that bring the event of a name to the host.

    The connection breaks when that event has its run. Returns when the network is back.
    """
    await _lose(network, far, calls, when=lambda: runs_of(near, name))


async def _lose(
    network: Network, far: Caller, calls: Sequence[Awaitable[Any]], when: Callable[[], object]
) -> None:
    network.loses_answers = True
    pending = [asyncio.ensure_future(call) for call in calls]
    await eventually(when)
    assert not any(call.done() for call in pending)
    network.cut()
    network.loses_answers = False
    for error in await asyncio.gather(*pending, return_exceptions=True):
        assert isinstance(error, grpc.aio.AioRpcError)
        assert error.code() is UNAVAILABLE
    await eventually(lambda: _is_connected(far))


async def _is_connected(far: Caller) -> bool:
    try:
        await far.list(page_size=1)
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_event_submitted_again_is_answered_with_its_run(
    caller: Caller, far: Caller, network: Network, tmp_path: Path
) -> None:
    event = an_event("lost-1", tmp_path / "note")
    await lose(network, caller, far, "lost-1", far.submit(event, "scripted"))
    again = await far.submit(event, "scripted")
    assert again.duplicate
    assert [run.run_id for run in await runs_of(caller, "lost-1")] == [again.run_id]
    assert (await far.watch(again.run_id)).messages == ["said once"]
    assert calls_of(tmp_path / "note") == 1


async def test_event_dispatched_again_is_answered_with_all_that_came_of_it(
    caller: Caller, far: Caller, network: Network, tmp_path: Path
) -> None:
    event = an_event("lost-2", tmp_path / "note")
    await lose(network, caller, far, "lost-2", far.dispatch(event, "scripted"))
    again = await far.dispatch(event, "scripted")
    again.check_numbers()
    assert again.accepted.duplicate
    assert again.ended.status == COMPLETED
    assert again.messages == ["said once"]
    assert len(await runs_of(caller, "lost-2")) == calls_of(tmp_path / "note") == 1


async def test_many_who_lost_their_answers_and_ask_again_at_once_get_one_run(
    caller: Caller, far: Caller, network: Network, tmp_path: Path
) -> None:
    event = an_event("lost-3", tmp_path / "note")
    calls = [far.submit(event, "scripted") for _ in range(AT_ONCE)]
    await lose(network, caller, far, "lost-3", *calls)
    submitted, dispatched = await asyncio.gather(
        asyncio.gather(*(far.submit(event, "scripted") for _ in range(AT_ONCE))),
        asyncio.gather(*(far.dispatch(event, "scripted") for _ in range(AT_ONCE))),
    )
    (run,) = await runs_of(caller, "lost-3")
    assert {each.run_id for each in submitted} == {run.run_id}
    assert {each.run_id for each in dispatched} == {run.run_id}
    assert all(each.duplicate for each in submitted)
    assert {tuple(each.messages) for each in dispatched} == {("said once",)}
    assert calls_of(tmp_path / "note") == 1


async def test_client_that_retries_by_itself_notices_nothing(
    caller: Caller, network: Network, host: HostProcess, tmp_path: Path
) -> None:
    event = an_event("lost-4", tmp_path / "note")
    options: list[tuple[str, Any]] = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.service_config", RETRIES),
    ]
    async with grpc.aio.insecure_channel(network.address, options=options) as channel:
        far = Caller(channel, host.key)
        await far.list(page_size=1)
        network.loses_answers = True
        submitting = asyncio.ensure_future(far.submit(event, "scripted"))
        await eventually(lambda: runs_of(caller, "lost-4"))
        network.loses_answers = False
        network.cut()
        run = await submitting
    assert run.duplicate
    assert [each.run_id for each in await runs_of(caller, "lost-4")] == [run.run_id]
    await caller.watch(run.run_id)
    assert calls_of(tmp_path / "note") == 1


async def test_other_content_under_the_key_of_a_lost_answer_is_refused(
    caller: Caller, far: Caller, network: Network, tmp_path: Path
) -> None:
    event = an_event("lost-5", tmp_path / "note")
    await lose(network, caller, far, "lost-5", far.submit(event, "scripted"))
    other = message("other", event_id="lost-5", conversation_id="lost-5")
    for call in (far.submit(other, "scripted"), far.dispatch(other, "scripted")):
        refusal = await refused(call)
        assert refusal.code == refusal.reason == "ALREADY_EXISTS"
    assert len(await runs_of(caller, "lost-5")) == 1


async def test_run_cancelled_again_stays_as_it_ended(
    caller: Caller, far: Caller, network: Network
) -> None:
    run = await caller.submit(
        scripted(say("x"), {"sleep": 3600}, conversation_id="lost-6"), "scripted"
    )

    async def has_ended() -> bool:
        return (await caller.get(run.run_id)).HasField("ended_at")

    await _lose(network, far, [far.cancel(run.run_id, "first")], when=has_ended)
    again = await far.cancel(run.run_id, "second")
    assert again.status == CANCELLED
    assert again.failure.message == "first"
    assert (await collect(far.watching(run.run_id))).ended == again
