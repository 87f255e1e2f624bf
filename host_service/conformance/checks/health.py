"""Standard health, also under work, and server reflection."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from host_service.conformance.check import Check, Reach
from host_service.conformance.findings import Failed
from host_service.conformance.samples import long_text
from host_service.conformance.session import Session
from host_service.conformance.statuses import told

_SERVICES = ("runmesh.v1.DiscoveryService", "runmesh.v1.RunService")
_REFLECTION = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
_LOOKS = 5
_BUSY_BYTES = 500_000


async def _serving(session: Session) -> str:
    status = await session.health()
    if status != health_pb2.HealthCheckResponse.SERVING:
        raise Failed(
            expected="SERVING from a process that is initialized and not draining",
            got=_status_name(status),
            advice="set the status of the service '' to SERVING once the process is ready",
        )
    return ""


async def _busy(session: Session) -> str:
    """Looks at health while as many runs as the kit may have are under way."""
    holding = session.holding
    count = session.at_once
    if await holding.way() is not None:
        runs = await asyncio.gather(*(holding.hold(f"busy {at}") for at in range(count)))
    else:
        runs = await asyncio.gather(
            *(session.begin(f"busy {at}", long_text(_BUSY_BYTES)) for at in range(count))
        )
    try:
        for _ in range(_LOOKS):
            status = await session.health(session.patience.health_seconds)
            if status != health_pb2.HealthCheckResponse.SERVING:
                raise Failed(
                    expected=f"SERVING with {count} runs under way",
                    got=_status_name(status),
                    advice="being busy is not being ill: say NOT_SERVING only while draining, and "
                    "refuse runs over max_concurrent_runs with RESOURCE_EXHAUSTED instead",
                )
            await asyncio.sleep(0.05)
    finally:
        for run in runs:
            await run.close()
    return f"{count} runs under way"


async def _reflection(session: Session) -> str:
    offered = []
    for package in _REFLECTION:
        try:
            services = await _services(session, package)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                continue
            raise Failed(
                expected=f"{package}.ServerReflection to answer",
                got=told(error.code(), error.details()),
                advice="register the reflection service of your gRPC library",
            ) from error
        offered.append(package)
        missing = [name for name in _SERVICES if name not in services]
        if missing:
            raise Failed(
                expected=f"{' and '.join(_SERVICES)} in what {package} lists",
                got=", ".join(sorted(services)) or "nothing",
                advice="give the names of all services to the reflection service",
            )
        await _described(session, package)
    if not offered:
        raise Failed(
            expected=f"one of {' and '.join(_REFLECTION)}",
            got="UNIMPLEMENTED from both",
            advice="register the reflection service of your gRPC library: grpcurl needs it",
        )
    return ", ".join(offered)


async def _services(session: Session, package: str) -> set[str]:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    answer = await _reflect(session, package, request)
    return {service.name for service in answer.list_services_response.service}


async def _described(session: Session, package: str) -> None:
    """Raises Failed unless a service's description can be had and read."""
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=_SERVICES[1])
    answer = await _reflect(session, package, request)
    described = set()
    for data in answer.file_descriptor_response.file_descriptor_proto:
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
        described |= {f"{file.package}.{service.name}" for service in file.service}
    if _SERVICES[1] not in described:
        raise Failed(
            expected=f"the file that describes {_SERVICES[1]}",
            got=answer.error_response.error_message or "another file",
            advice="serve reflection with the generated descriptors linked in",
        )


async def _reflect(
    session: Session, package: str, request: reflection_pb2.ServerReflectionRequest
) -> reflection_pb2.ServerReflectionResponse:
    # Both versions are the same on the wire, under two names; and a stream of one request is one
    # request, whose sending cannot come in the way of a server that refuses the call.
    method = session.channel.unary_stream(
        f"/{package}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    async for answer in method(request, timeout=session.patience.answer_seconds):
        return answer
    return reflection_pb2.ServerReflectionResponse()


def _status_name(status: int) -> str:
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


CHECKS: Final = (
    Check(
        "health.serving",
        "The standard health check says SERVING.",
        "discovery.proto, DiscoveryService",
        _serving,
        reach=Reach.DIALLED,
    ),
    Check(
        "health.busy",
        "Being busy is not being ill.",
        "discovery.proto, DiscoveryService",
        _busy,
        reach=Reach.DIALLED,
    ),
    Check(
        "reflection.describes",
        "Server reflection lists and describes the services.",
        "discovery.proto, DiscoveryService",
        _reflection,
        reach=Reach.DIALLED,
    ),
)
