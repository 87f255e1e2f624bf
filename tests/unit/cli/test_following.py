"""A run is followed to its end across streams that break off, without gaps or repeats.

The host is a small one of the test's own, because a real one breaks off only when it is overloaded
or stopped; the connection between is real.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from runmesh.v1 import gateway_pb2, gateway_pb2_grpc, result_pb2

from host_service.cli import following
from host_service.cli.connection import Endpoint, connect
from host_service.cli.following import dispatch, watch

RUN = gateway_pb2.Run(run_id="r1")

# What a stream of the host does: items to send, then an error, or the end of the stream.
Script = list[gateway_pb2.WatchRunResponse | grpc.StatusCode]


def accepted() -> gateway_pb2.WatchRunResponse:
    return gateway_pb2.WatchRunResponse(accepted=RUN)


def ended() -> gateway_pb2.WatchRunResponse:
    return gateway_pb2.WatchRunResponse(ended=RUN)


def numbers(*sequences: int) -> gateway_pb2.WatchRunResponse:
    results = [result_pb2.RunResult(sequence=number) for number in sequences]
    return gateway_pb2.WatchRunResponse(results=gateway_pb2.ResultBatch(results=results))


class ScriptedHost(gateway_pb2_grpc.GatewayServiceServicer):
    """Plays one script for each stream, and remembers after which number each was asked for."""

    def __init__(self, scripts: list[Script]) -> None:
        self.scripts = scripts
        self.asked_after: list[int] = []

    async def Dispatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ARG002, N802
        async for item in self._play(context):
            yield gateway_pb2.DispatchResponse.FromString(item.SerializeToString())

    async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.asked_after.append(request.after_sequence)
        async for item in self._play(context):
            yield item

    async def _play(self, context: Any) -> AsyncIterator[gateway_pb2.WatchRunResponse]:
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        for step in script:
            if isinstance(step, gateway_pb2.WatchRunResponse):
                yield step
            else:
                await context.abort(step, "broken off")


@asynccontextmanager
async def followed(
    tmp_path: Path, host: ScriptedHost, start: Callable[[Any], AsyncIterator[following.Item]]
) -> AsyncIterator[AsyncIterator[following.Item]]:
    server = grpc.aio.server()
    gateway_pb2_grpc.add_GatewayServiceServicer_to_server(host, server)
    address = f"unix:{tmp_path}/h.sock"
    server.add_insecure_port(address)
    await server.start()
    try:
        async with connect(Endpoint(address=address, api_key="rmk_x")) as connection:
            yield start(connection)
    finally:
        await server.stop(None)


async def seen(
    tmp_path: Path, host: ScriptedHost, start: Callable[[Any], AsyncIterator[following.Item]]
) -> list[str]:
    shown = []
    async with followed(tmp_path, host, start) as items:
        async for item in items:
            kind = item.WhichOneof("item") or ""
            shown += [str(each.sequence) for each in item.results.results] or [kind]
    return shown


def dispatched(connection: Any) -> AsyncIterator[following.Item]:
    return dispatch(connection, gateway_pb2.DispatchRequest())


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_PAUSE_SECONDS", 0)


@pytest.mark.parametrize(
    "break_off", [[grpc.StatusCode.RESOURCE_EXHAUSTED], [grpc.StatusCode.UNAVAILABLE], []]
)
async def test_a_stream_that_breaks_off_is_taken_up_after_the_last_number(
    tmp_path: Path, break_off: Script
) -> None:
    host = ScriptedHost(
        [
            [accepted(), numbers(1, 2), numbers(5), *break_off],
            [accepted(), *break_off],
            [accepted(), numbers(6), ended()],
        ]
    )
    assert await seen(tmp_path, host, dispatched) == ["accepted", "1", "2", "5", "6", "ended"]
    assert host.asked_after == [5, 5]


async def test_a_bookmark_counts_as_a_number_seen(tmp_path: Path) -> None:
    bookmark = gateway_pb2.WatchRunResponse(bookmark=9)
    host = ScriptedHost(
        [[accepted(), bookmark, grpc.StatusCode.UNAVAILABLE], [accepted(), ended()]]
    )
    shown = await seen(tmp_path, host, lambda connection: watch(connection, "r1", 3))
    assert shown == ["accepted", "bookmark", "ended"]
    assert host.asked_after == [3, 9]


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED])
async def test_an_event_that_was_not_accepted_is_not_sent_again(
    tmp_path: Path, code: grpc.StatusCode
) -> None:
    host = ScriptedHost([[code], [accepted(), ended()]])
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await seen(tmp_path, host, dispatched)
    assert refused.value.code() is code
    assert len(host.scripts) == 1


async def test_a_refusal_is_final(tmp_path: Path) -> None:
    host = ScriptedHost([[accepted(), grpc.StatusCode.PERMISSION_DENIED], [accepted(), ended()]])
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await seen(tmp_path, host, dispatched)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("before", [[], [accepted()], [accepted(), numbers(1)]])
async def test_a_host_that_gets_no_further_is_given_up(tmp_path: Path, before: Script) -> None:
    host = ScriptedHost([[accepted(), numbers(1)], [*before, grpc.StatusCode.UNAVAILABLE]])
    with pytest.raises(grpc.aio.AioRpcError) as lost:
        await seen(tmp_path, host, dispatched)
    assert lost.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_progress_renews_the_patience(tmp_path: Path) -> None:
    many = following._FRUITLESS_ATTEMPTS + 5
    broken: list[Script] = [
        [accepted(), numbers(number), grpc.StatusCode.UNAVAILABLE] for number in range(1, many)
    ]
    host = ScriptedHost([*broken, [accepted(), ended()]])
    shown = await seen(tmp_path, host, dispatched)
    assert shown == ["accepted", *(str(number) for number in range(1, many)), "ended"]


async def test_a_follower_that_stops_ends_the_stream(tmp_path: Path) -> None:
    host = ScriptedHost([[accepted(), numbers(1), numbers(2), ended()]])
    async with followed(tmp_path, host, dispatched) as items:
        async for item in items:
            if item.HasField("results"):
                break
        await items.aclose()  # type: ignore[attr-defined]
    assert host.asked_after == []
