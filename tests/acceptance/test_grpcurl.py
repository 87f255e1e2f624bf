"""Looking into a host, and using it, with nothing but grpcurl."""

import json

import pytest

from tests.acceptance.grpcurl import Grpcurl
from tests.integration.host.host_process import HostProcess
from tests.integration.host.processes import descendants, unix_listeners

# Building it, once, takes minutes on a slow machine.
pytestmark = pytest.mark.timeout(600)

FAMILY = "hello, 世界 👩‍👩‍👧"


def test_every_service_is_listed(grpcurl: Grpcurl, plain_host: HostProcess) -> None:
    for address in (plain_host.addresses["grpc"], plain_host.addresses["socket"]):
        listed = grpcurl(address, "list").split()
        assert set(listed) >= {
            "grpc.channelz.v1.Channelz",
            "grpc.health.v1.Health",
            "runmesh.admin.v1.AdminService",
            "runmesh.v1.AttachService",
            "runmesh.v1.DiscoveryService",
            "runmesh.v1.GatewayService",
            "runmesh.v1.HostAPIService",
        }


@pytest.mark.parametrize(
    ("symbol", "word"),
    [
        ("runmesh.v1.GatewayService", "rpc Dispatch ( .runmesh.v1.DispatchRequest )"),
        ("runmesh.v1.HostAPIService", "rpc SetState"),
        ("runmesh.v1.AttachService", "stream .runmesh.v1.AttachRequest"),
        ("runmesh.admin.v1.AdminService", "rpc Apply"),
        ("runmesh.v1.EventEnvelope", "conversation_id"),
    ],
)
def test_services_and_messages_are_described(
    grpcurl: Grpcurl, plain_host: HostProcess, symbol: str, word: str
) -> None:
    assert word in grpcurl(plain_host.addresses["grpc"], "describe", symbol)


def test_event_in_json_is_answered_and_the_ended_run_comes_last(
    grpcurl: Grpcurl, plain_host: HostProcess
) -> None:
    event = {"type": "message.received", "input": {"text": FAMILY}}
    items = grpcurl.messages(
        plain_host.addresses["grpc"],
        "runmesh.v1.GatewayService/Dispatch",
        key=plain_host.key,
        data=json.dumps({"event": event}),
    )
    assert list(items[0]) == ["accepted"]
    assert list(items[-1]) == ["ended"]
    assert items[-1]["ended"]["status"] == "RUN_STATUS_COMPLETED"
    results = [each for item in items[1:-1] for each in item["results"]["results"]]
    assert "".join(each["messageDelta"]["text"] for each in results if "messageDelta" in each) == (
        FAMILY
    )
    assert "runCompleted" in results[-1]


def test_refusal_names_reason_and_field(grpcurl: Grpcurl, plain_host: HostProcess) -> None:
    with pytest.raises(AssertionError) as caught:
        grpcurl(
            plain_host.addresses["grpc"],
            "runmesh.v1.GatewayService/SubmitEvent",
            key=plain_host.key,
            data='{"event": {"input": {"text": "of no type"}}}',
        )
    told = str(caught.value)
    assert "InvalidArgument" in told
    assert "event.type" in told
    assert "runmesh" in told


def test_health_is_told_without_a_key(grpcurl: Grpcurl, plain_host: HostProcess) -> None:
    (answer,) = grpcurl.messages(plain_host.addresses["grpc"], "grpc.health.v1.Health/Check")
    assert answer == {"status": "SERVING"}


def test_plugins_answer_on_their_own_sockets(grpcurl: Grpcurl, plain_host: HostProcess) -> None:
    paths = {path for each in descendants(plain_host.pid) for path in unix_listeners(each.pid)}
    runners = []
    for socket in paths:
        assert "runmesh.v1.RunService" in grpcurl(f"unix:{socket}", "list").split()
        (answer,) = grpcurl.messages(f"unix:{socket}", "runmesh.v1.DiscoveryService/ListRunners")
        runners += answer["runners"]
    runners.sort(key=lambda each: each["id"])
    assert [each["id"] for each in runners] == [
        "plugin:runmesh/echo/default",
        "plugin:runmesh/local-agent/default",
    ]
    (mesh,) = grpcurl.messages(
        plain_host.addresses["grpc"],
        "runmesh.v1.DiscoveryService/ListRunners",
        key=plain_host.key,
    )
    assert sorted(mesh["runners"], key=lambda each: each["id"]) == runners
    assert mesh["instances"][0]["state"] == "INSTANCE_STATE_SERVING"
