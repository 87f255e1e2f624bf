"""Getting to know a process: is it ready, is it who it should be, what does it serve."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from runmesh.v1 import discovery_pb2, discovery_pb2_grpc, manifest_pb2

from host_service.registry.errors import NotAnswering, PluginIncompatible, PluginRefused
from host_service.registry.manifest_check import check_manifests
from host_service.registry.records import PROTOCOL_VERSIONS, HostIdentity, Introduction

_log = logging.getLogger("runmesh.registry")

_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.05


async def wait_until_serving(channel: grpc.aio.Channel, note: Callable[[str], None]) -> None:
    """Returns once the process's standard health check says SERVING; the caller bounds the time.

    Args:
        channel: The connection to it.
        note: Is told why it does not serve yet.

    Raises:
        PluginRefused: The process has no health service.
    """
    health = health_pb2_grpc.HealthStub(channel)
    pause_seconds = _FIRST_PAUSE_SECONDS
    while True:
        try:
            answer = await health.Check(health_pb2.HealthCheckRequest())
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
            note("its health check does not say SERVING yet")
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise PluginRefused("it does not serve grpc.health.v1.Health") from error
            note(f"{error.code().name}: {error.details() or 'no details'}")
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 1.5, _LONGEST_PAUSE_SECONDS)


async def introduce(
    channel: grpc.aio.Channel,
    *,
    identity: HostIdentity,
    plugin_id: str,
    settings_json: str | None,
) -> Introduction:
    """Shakes hands with a process, and reads and checks its manifests.

    The caller bounds the time.

    Args:
        channel: The connection to it.
        identity: What the host says of itself.
        plugin_id: The plugin that the process was found as; it may not name another.
        settings_json: The plugin's settings as an operator set them, or None.

    Raises:
        NotAnswering: A call failed in a way that another try may mend.
        PluginIncompatible: No protocol version in common.
        PluginRefused: It named another plugin, or its answers break the contract.
    """
    discovery = discovery_pb2_grpc.DiscoveryServiceStub(channel)
    request = greeting(identity, settings_json)
    try:
        answer = await discovery.Handshake(request)
        _check_answer(answer, plugin_id=plugin_id)
        listed = await discovery.ListRunners(discovery_pb2.ListRunnersRequest())
    except grpc.aio.AioRpcError as error:
        raise _failed_call(error) from error
    return introduction_of(answer, listed.runners, plugin_id=plugin_id)


def greeting(identity: HostIdentity, settings_json: str | None) -> discovery_pb2.HandshakeRequest:
    """What the host says of itself to a plugin with these settings."""
    return discovery_pb2.HandshakeRequest(
        host_id=identity.host_id,
        host_name=identity.name,
        host_version=identity.version,
        protocol_versions=PROTOCOL_VERSIONS,
        settings_json=settings_json,
    )


def introduction_of(
    answer: discovery_pb2.HandshakeResponse,
    runners: Iterable[manifest_pb2.RunnerManifest],
    *,
    plugin_id: str,
) -> Introduction:
    """What a process says of itself, checked; a manifest that breaks a rule costs only itself.

    Raises:
        PluginIncompatible: It picked no protocol version of this host.
        PluginRefused: It named another plugin, or its answer breaks the contract.
    """
    _check_answer(answer, plugin_id=plugin_id)
    check = check_manifests(plugin_id, runners)
    for warning in check.warnings:
        _log.warning("%s", warning)
    for fault in check.faults:
        _log.warning("a runner is left out: %s", fault)
    return Introduction(
        instance_id=answer.instance_id,
        plugin_version=answer.plugin_version,
        sdk=_joined([answer.sdk_name, answer.sdk_language, answer.sdk_version]),
        max_concurrent_runs=answer.max_concurrent_runs,
        manifests=MappingProxyType({manifest.id: manifest for manifest in check.accepted}),
        faults=check.faults,
    )


def _check_answer(answer: discovery_pb2.HandshakeResponse, *, plugin_id: str) -> None:
    if answer.plugin_id != plugin_id:
        raise PluginRefused(
            f"it was found as {plugin_id!r}, and its handshake names {answer.plugin_id[:200]!r}"
        )
    if answer.protocol_version not in PROTOCOL_VERSIONS:
        picked = repr(answer.protocol_version[:64]) if answer.protocol_version else "none"
        raise PluginIncompatible(
            f"no protocol version in common: this host speaks {_spoken()}, it picked {picked}"
        )
    _check_size("plugin_version", answer.plugin_version, limit=64)
    _check_size("instance_id", answer.instance_id, limit=255)
    if answer.max_concurrent_runs < 0:
        raise PluginRefused(
            f"handshake: max_concurrent_runs must be 0 or more, got {answer.max_concurrent_runs}"
        )


def _spoken() -> str:
    return ", ".join(PROTOCOL_VERSIONS)


def _check_size(field: str, value: str, *, limit: int) -> None:
    size = len(value.encode())
    if not 1 <= size <= limit:
        raise PluginRefused(f"handshake: {field} must have 1 to {limit} bytes, got {size}")


def _failed_call(error: grpc.aio.AioRpcError) -> NotAnswering | PluginRefused:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return PluginRefused("it does not serve runmesh.v1.DiscoveryService")
    return NotAnswering(
        f"its handshake failed: {error.code().name}: {error.details() or 'no details'}"
    )


def _joined(parts: Sequence[str]) -> str:
    return " ".join(part[:64] for part in parts if part)
