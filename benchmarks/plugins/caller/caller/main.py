"""The caller: one kind of HostAPI call, to the host through the SDK, or bare to somebody else."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from time import perf_counter
from typing import Any

import grpc
from runmesh.v1 import host_api_pb2, host_api_pb2_grpc, result_pb2

from runner_sdk import AgentRunner, HostCallError, Result, RunContext, serve

_KEY = "measured"
_VALUE = {"text": "x" * 200}
_REQUESTS = {
    "GetState": host_api_pb2.GetStateRequest(scope=result_pb2.STATE_SCOPE_CONVERSATION, key=_KEY),
    "PageHistory": host_api_pb2.PageHistoryRequest(page_size=50),
}
_WARM_UP_SECONDS = 0.1

Call = Callable[[], Awaitable[Any]]


class Caller(AgentRunner):
    """Calls for some time, and logs the median in milliseconds and the calls a second."""

    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        """Yields one log line, and says nothing else."""
        name, seconds = ctx.config["call"], ctx.config["seconds"]
        request = _REQUESTS[name]
        if not seconds:
            await _write_once(ctx)
            answer = await ctx.host.call(name, request)
            yield ctx.log(base64.b64encode(answer.SerializeToString()).decode())
        elif address := ctx.config["bare_address"]:
            async with grpc.aio.insecure_channel(
                address, options=(("grpc.default_authority", "localhost"),)
            ) as channel:
                bare = getattr(host_api_pb2_grpc.HostAPIServiceStub(channel), name)
                yield ctx.log(await _measure(lambda: bare(request), ctx.config["callers"], seconds))
        else:
            host = ctx.host
            call: Call = lambda: host.call(name, request)  # noqa: E731
            yield ctx.log(await _measure(call, ctx.config["callers"], seconds))
        yield ctx.reply("measured")


async def _write_once(ctx: RunContext) -> None:
    try:
        await ctx.host.state.set("conversation", _KEY, _VALUE, expected_version=0)
    except HostCallError as error:
        if error.reason != "CONFLICT":
            raise


async def _measure(call: Call, callers: int, seconds: float) -> str:
    begin = perf_counter() + _WARM_UP_SECONDS
    end = begin + seconds
    times: list[float] = []

    async def keep_calling() -> None:
        while (called := perf_counter()) < end:
            await call()
            if called >= begin:
                times.append(perf_counter() - called)

    await asyncio.gather(*(keep_calling() for _ in range(callers)))
    times.sort()
    return json.dumps({"milliseconds": times[len(times) // 2] * 1000, "rate": len(times) / seconds})


if __name__ == "__main__":
    serve(Caller())
