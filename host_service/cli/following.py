"""Follows a run to its end, across streams that break off.

A stream may end before its run does: the host drops a reader that is too slow (a pager, say), or
restarts. Every result has a number, so another stream takes over after the last one seen.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc
from runmesh.v1 import gateway_pb2

from host_service.cli.connection import HostConnection

Item = gateway_pb2.DispatchResponse | gateway_pb2.WatchRunResponse
if TYPE_CHECKING:
    _DispatchStream = grpc.aio.UnaryStreamCall[
        gateway_pb2.DispatchRequest, gateway_pb2.DispatchResponse
    ]
    _WatchStream = grpc.aio.UnaryStreamCall[
        gateway_pb2.WatchRunRequest, gateway_pb2.WatchRunResponse
    ]

_PAUSE_SECONDS = 0.2
# A host that restarts is back within seconds; it then says what became of its runs.
_FRUITLESS_ATTEMPTS = 25
_MAY_PASS = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED})


async def dispatch(
    connection: HostConnection, request: gateway_pb2.DispatchRequest
) -> AsyncIterator[Item]:
    """Sends an event and yields what comes of it, from the accepted run to the ended run.

    Raises:
        grpc.aio.AioRpcError: The host refused the event, or was lost for good.
    """
    stream = connection.gateway.Dispatch(request, metadata=connection.metadata)
    async for item in _follow(connection, stream, run_id="", after=0):
        yield item


async def watch(connection: HostConnection, run_id: str, after: int) -> AsyncIterator[Item]:
    """Yields everything of a run after a number, from the run as it is to the ended run.

    Raises:
        grpc.aio.AioRpcError: The host refused, or was lost for good.
    """
    stream = _watch_stream(connection, run_id, after)
    async for item in _follow(connection, stream, run_id=run_id, after=after):
        yield item


def last_number(item: Item) -> int:
    """The largest number that an item of a stream carries; 0 when it has none."""
    kind = item.WhichOneof("item")
    if kind == "results":
        return item.results.results[-1].sequence if item.results.results else 0
    return item.bookmark if kind == "bookmark" else 0


async def _follow(
    connection: HostConnection,
    stream: "_DispatchStream | _WatchStream",
    *,
    run_id: str,
    after: int,
) -> AsyncIterator[Item]:
    accepted, attempts = False, 0
    while attempts <= _FRUITLESS_ATTEMPTS:
        try:
            async for item in stream:
                kind = item.WhichOneof("item")
                if kind == "accepted":
                    run_id = item.accepted.run_id
                    if accepted:
                        continue
                    accepted = True
                if last_number(item) > after:
                    after, attempts = last_number(item), 0
                yield item
                if kind == "ended":
                    return
        except grpc.aio.AioRpcError as error:
            if not run_id or error.code() not in _MAY_PASS or attempts == _FRUITLESS_ATTEMPTS:
                raise
        finally:
            # When nobody wants the rest, the host must not go on sending it.
            stream.cancel()
        if not run_id:
            return
        attempts += 1
        await asyncio.sleep(_PAUSE_SECONDS)
        stream = _watch_stream(connection, run_id, after)


def _watch_stream(connection: HostConnection, run_id: str, after: int) -> "_WatchStream":
    request = gateway_pb2.WatchRunRequest(run_id=run_id, after_sequence=after)
    return connection.gateway.WatchRun(request, metadata=connection.metadata)
