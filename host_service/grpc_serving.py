"""The gRPC server: its services registered, bound, and taken down so that every call cleans up."""

from __future__ import annotations

import contextlib
from asyncio import timeout
from typing import Any

import grpc
import grpc.aio
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from runmesh.admin.v1 import admin_pb2_grpc
from runmesh.v1 import (
    discovery_pb2_grpc,
    gateway_pb2_grpc,
    host_api_pb2_grpc,
)

from host_service.admin import AdminServicer
from host_service.attach import AttachServicer
from host_service.discovery import DiscoveryServicer
from host_service.gateway import GatewayServicer
from host_service.host_api import HostAPIServicer
from host_service.interceptors import EdgeInterceptor
from host_service.reflection import serve_reflection

#: The services of the contract that a host serves.
SERVICES = (
    "runmesh.admin.v1.AdminService",
    "runmesh.v1.AttachService",
    "runmesh.v1.DiscoveryService",
    "runmesh.v1.GatewayService",
    "runmesh.v1.HostAPIService",
)
_STANDARD_SERVICES = (
    "grpc.channelz.v1.Channelz",
    health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
)
# How long calls that were ended may take to clean up after themselves.
_CLEAN_UP_SECONDS = 5.0


def register(
    server: grpc.aio.Server,
    *,
    gateway: GatewayServicer,
    admin: AdminServicer,
    discovery: DiscoveryServicer,
    host_api: HostAPIServicer,
    attach: AttachServicer,
    health_servicer: health.aio.HealthServicer,
) -> None:
    """Register every service of the contract, and health, reflection and channelz beside them."""
    generic: Any = _GenericHandlers(server)
    gateway_pb2_grpc.add_GatewayServiceServicer_to_server(gateway, generic)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, generic)
    discovery_pb2_grpc.add_DiscoveryServiceServicer_to_server(discovery, generic)
    register_host_api(server, host_api)
    register_attach(server, attach)
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, generic)
    channelz.add_channelz_servicer(generic)
    serve_reflection((*SERVICES, *_STANDARD_SERVICES), generic)


def register_host_api(server: grpc.aio.Server, host_api: HostAPIServicer) -> None:
    """Register what a host serves to runs."""
    generic: Any = _GenericHandlers(server)
    host_api_pb2_grpc.add_HostAPIServiceServicer_to_server(host_api, generic)


def register_attach(server: grpc.aio.Server, attach: AttachServicer) -> None:
    """Register what a host serves to runners that dial it, by hand: its messages come as bytes.

    A text in a result that is no Unicode costs that run, at most, and not the stream of all.
    """
    handler: Any = grpc.stream_stream_rpc_method_handler(attach.Attach, response_serializer=_encode)
    generic = grpc.method_handlers_generic_handler("runmesh.v1.AttachService", {"Attach": handler})
    server.add_generic_rpc_handlers((generic,))


async def make_health_servicer() -> health.aio.HealthServicer:
    """Make what answers health checks; it says NOT_SERVING until `say_serving`."""
    health_servicer = health.aio.HealthServicer()
    await _say(health_servicer, health_pb2.HealthCheckResponse.NOT_SERVING)
    return health_servicer


async def say_serving(health_servicer: health.aio.HealthServicer) -> None:
    """Let health checks say SERVING."""
    await _say(health_servicer, health_pb2.HealthCheckResponse.SERVING)


async def _say(
    health_servicer: health.aio.HealthServicer,
    status: health_pb2.HealthCheckResponse.ServingStatus.ValueType,
) -> None:
    for service in ("", *SERVICES):
        await health_servicer.set(service, status)


async def end_calls(server: grpc.aio.Server, edge: EdgeInterceptor) -> None:
    """End calls, and wait until each has cleaned up after itself, which `stop` does not."""
    await server.stop(1.0)
    with contextlib.suppress(TimeoutError):
        async with timeout(_CLEAN_UP_SECONDS):
            await edge.idle()


class _GenericHandlers:
    """A server to register with: methods found by their names, responses that may be bytes.

    For each method that is registered the way generated code does it, gRPC keeps a task that waits
    for calls of it, and looks at all of these tasks whenever a call comes.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing: generated code hands its handlers in twice."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Add the handlers of a service, under a serializer that lets bytes pass."""
        passing = {
            name: handler._replace(response_serializer=_encode)
            for name, handler in handlers.items()
        }
        generic = grpc.method_handlers_generic_handler(service, passing)
        self._server.add_generic_rpc_handlers((generic,))


def _encode(response: Any) -> bytes:
    if type(response) is bytes:
        return response
    encoded: bytes = response.SerializeToString()
    return encoded
