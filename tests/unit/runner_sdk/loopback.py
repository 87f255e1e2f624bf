"""A runner of a test, served on loopback by a stand-in host."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf import message_factory
from grpc import aio
from runmesh.v1 import host_api_pb2

from runner_sdk import AgentRunner, Manifest, RunContext, agent_runner
from runner_sdk.testing import StandInHost

_SERVICE = host_api_pb2.DESCRIPTOR.services_by_name["HostAPIService"]


def serving(
    *runners: AgentRunner, max_concurrent_runs: int = 0, manifest: Manifest | None = None
) -> StandInHost:
    """Serves runners that have no manifest files."""
    if manifest is None:
        manifest = Manifest.minimal("acme/test", *(runner.name for runner in runners))
    return StandInHost(*runners, manifest=manifest, max_concurrent_runs=max_concurrent_runs)


@asynccontextmanager
async def a_run(
    prepare: Callable[[StandInHost], object] = lambda _: None,
    *,
    manifest: Manifest | None = None,
    address: str | None = None,
    **circumstances: Any,
) -> AsyncIterator[tuple[StandInHost, RunContext]]:
    """A run under way, whose context the test itself uses.

    Args:
        prepare: What the host is given before the run starts.
        manifest: The runner's manifest. None: it asks for everything.
        address: Where the run's calls go, instead of to the stand-in host.
        **circumstances: As in `StandInHost.start`.
    """
    handed: asyncio.Future[RunContext] = asyncio.get_running_loop().create_future()
    released = asyncio.Event()

    @agent_runner
    async def lends(ctx: RunContext) -> None:
        handed.set_result(ctx)
        await released.wait()

    async with serving(lends, manifest=manifest) as host:
        prepare(host)
        if address is not None:
            host._api_address = address
        call = host.start("hi", **circumstances)
        reader = asyncio.create_task(call.outcome())
        try:
            yield host, await asyncio.wait_for(handed, 10)
        finally:
            released.set()
            await reader


@asynccontextmanager
async def a_host_api(
    handlers: Mapping[str, Callable[[Any, Any], Awaitable[Any]]],
) -> AsyncIterator[str]:
    """A server of HostAPIService that does what a test says, even what no host does.

    Args:
        handlers: By a call's name, a function of the request, or of its stream, and of gRPC's
            context. A call that is answered by a stream writes with the context.
    """
    server = aio.server()
    served = {name: _handler(name, handle) for name, handle in handlers.items()}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE.full_name, served),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def _handler(name: str, handle: Callable[[Any, Any], Awaitable[Any]]) -> Any:
    method = _SERVICE.methods_by_name[name]
    make: Any = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
    }[method.client_streaming, method.server_streaming]
    return make(
        handle,
        request_deserializer=message_factory.GetMessageClass(method.input_type).FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )
