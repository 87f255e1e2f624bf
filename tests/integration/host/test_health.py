"""Whether a host is well, and what it serves: told to whoever asks, without a key."""

import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.integration.host.calls import Caller, calling, message
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_shell_plugin
from tests.integration.host.waiting import eventually

SERVICES = {
    "runmesh.v1.AttachService",
    "runmesh.v1.DiscoveryService",
    "runmesh.v1.GatewayService",
    "runmesh.v1.HostAPIService",
    "runmesh.admin.v1.AdminService",
}
SERVING = health_pb2.HealthCheckResponse.SERVING


async def health_of(channel: grpc.aio.Channel, service: str = "") -> int:
    answer = await health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(service=service)
    )
    return int(answer.status)


def test_host_that_is_well_says_so_by_http(host: HostProcess) -> None:
    assert host.get("/healthz") == (200, {"status": "ok"})
    status, answer = host.get("/readyz")
    assert status == 200
    assert answer["status"] == "ready"


async def test_host_that_is_well_says_so_by_grpc(caller: Caller) -> None:
    for service in ("", *SERVICES):
        assert await health_of(caller.channel, service) == SERVING


async def test_every_service_is_listed_by_reflection(caller: Caller) -> None:
    channel: Any = caller.channel
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = [each async for each in stub.ServerReflectionInfo(iter([request]))]
    listed = {each.name for each in answers[0].list_services_response.service}
    assert listed == SERVICES | {
        "grpc.channelz.v1.Channelz",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_channels_can_be_looked_at(caller: Caller) -> None:
    channel: Any = caller.channel
    stub: Any = channelz_pb2_grpc.ChannelzStub(channel)
    assert (await stub.GetServers(channelz_pb2.GetServersRequest())).server


async def test_host_whose_plugins_are_starting_is_alive_and_not_ready(
    make_host: Callable[..., HostProcess], tmp_path: Path
) -> None:
    write_shell_plugin(tmp_path / "plugins", "acme/slow", "sleep 3600")
    host = make_host(plugins=tmp_path / "plugins")
    host.launch()
    await eventually(host.is_announced, seconds=40)
    assert host.get("/healthz")[0] == 200
    status, answer = host.get("/readyz")
    assert status == 503
    assert answer["missing"] == {"plugins": "starting"}
    async with calling(host.addresses["grpc"], host.key) as caller:
        assert await health_of(caller.channel) == health_pb2.HealthCheckResponse.NOT_SERVING
        # A runner that is there already need not wait for one that is not.
        assert (await caller.dispatch(message("early"))).text == "early"


async def test_nothing_else_is_served_by_http(host: HostProcess) -> None:
    assert _status(host, "/") == 404
    assert _status(host, "/healthz/x") == 404


def _status(host: HostProcess, path: str) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{host.addresses['http']}{path}", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
