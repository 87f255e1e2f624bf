"""Metadata: what HTTP/2 cannot carry costs one call at most, and text of any kind goes as data."""

import json
import re
from typing import Any

import pytest
from runmesh.v1 import event_pb2, gateway_pb2

from stores import Stores
from tests.integration.host.calls import END, Caller, message, scripted
from tests.integration.host.host_process import HostProcess
from tests.integration.host.raw_http2 import Answered, Headers, call
from tests.integration.host.refusals import refused

LABELS = {"标签": "测试", "X-Run": "Ünïcode 👋", "raw-bin": "no base64 {}", "line": "a\nb\tc"}
OK, INTERNAL, UNAUTHENTICATED = "0", "13", "16"
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def told(caller: Caller, **fields: Any) -> dict[str, Any]:
    """What a runner says of the metadata that it was given."""
    answer = await caller.dispatch(scripted({"tell": "metadata"}, END, **fields), "scripted")
    said: dict[str, Any] = json.loads(answer.messages[0])
    return said


async def test_metadata_of_an_event_is_data_that_reaches_runner_and_log(
    caller: Caller, stores: Stores
) -> None:
    said = await told(caller, metadata=LABELS, event_id="labels")
    assert said["event"] == LABELS
    kept = await stores.events.get("", "", "api", "labels")
    assert kept is not None
    assert event_pb2.EventEnvelope.FromString(kept.envelope).metadata == LABELS


async def test_what_the_host_sends_to_a_runner_is_fit_to_be_sent(caller: Caller) -> None:
    said = await told(
        caller,
        metadata=LABELS,
        conversation_id="测试",
        bot_id="BOT 👋",
        workspace_id="Ünï",
        actor=event_pb2.Actor(type="user", id="测试\n", name="测试"),
    )
    keys = {key for key, _ in said["call"]}
    assert {"traceparent", "user-agent"} <= keys
    for key, value in said["call"]:
        assert re.fullmatch(r"[0-9a-z_.-]+", key)
        assert re.fullmatch(r"[\x20-\x7e]*", value)


async def test_refusal_of_any_text_arrives_as_it_was_written(caller: Caller) -> None:
    refusal = await refused(caller.dispatch(message(), "测试 👋"))
    assert refusal.reason == "NOT_FOUND"
    assert refusal.facts["resource"] == "测试 👋"
    assert "测试 👋" in refusal.message


async def sent(host: HostProcess, *headers: tuple[bytes, bytes], key: bytes = b"") -> Answered:
    """Dispatches an event with headers by hand."""
    credential = (b"authorization", key or f"Bearer {host.key}".encode())
    given: Headers = (credential, *headers)
    request = gateway_pb2.DispatchRequest(event=message("hello"))
    return await call(host.addresses["grpc"], "/runmesh.v1.GatewayService/Dispatch", request, given)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"x-label", "测试".encode()),),
        ((b"x-label", b"\xff\xfe\x80"),),
        ((b"x-label", b"a\nb\0c"),),
        ((b"x-raw-bin", b"AAEC/w"),),
        ((b"x-raw-bin", b"AAEC/w=="),),
        ((b"traceparent", "00-测试".encode()),),
        ((b"traceparent", TRACE), (b"tracestate", "a=测试".encode())),
        ((b"traceparent", TRACE), (b"tracestate", b"a=b,,=\xff;;;")),
    ],
    ids=lambda headers: " ".join(name.decode() for name, _ in headers) or "none",
)
async def test_metadata_that_means_nothing_here_is_let_pass(
    host: HostProcess, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    answered = await sent(host, *headers)
    assert not answered.was_reset
    assert answered.status == OK
    assert b"hello" in answered.messages


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ((b"X-Run", b"1"), b"X-Run"),
        ((b"x run", b"1"), b"x run"),
        (("x-läbel".encode(), b"1"), b"x-l"),
        ((b"x-raw-bin", b"***"), b"x-raw-bin"),
        ((b"grpc-timeout", b"soon"), b"grpc-timeout"),
    ],
    ids=["uppercase", "space", "no ASCII", "no base64", "no time"],
)
async def test_key_that_cannot_be_is_named_and_costs_that_call_alone(
    caller: Caller, host: HostProcess, header: tuple[bytes, bytes], named: bytes
) -> None:
    answered = await sent(host, header)
    assert answered.status == INTERNAL
    assert not answered.messages
    assert named in answered.headers[-1]
    assert (await caller.dispatch(message("still there"))).text == "still there"


@pytest.mark.parametrize("key", ["Bearer 测试".encode(), b"Bearer \xff\xfe", b"\0", b"Bearer "])
async def test_credential_of_any_bytes_is_refused_as_one(host: HostProcess, key: bytes) -> None:
    answered = await sent(host, key=key)
    assert answered.status == UNAUTHENTICATED
    assert not answered.messages
