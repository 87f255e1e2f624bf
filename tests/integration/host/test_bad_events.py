"""Events that break rules: told which field, which rule and what was sent; nothing is started."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import event_pb2, gateway_pb2, types_pb2

from stores import Stores
from tests.integration.host.calls import Caller, agent, message
from tests.integration.host.refusals import refused

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
async def _nothing_is_started(caller: Caller) -> AsyncIterator[None]:
    """Holds what every test here refuses to its promise."""
    before = (await caller.list(page_size=1)).runs
    yield
    assert (await caller.list(page_size=1)).runs == before
    host = await caller.admin.GetHost(admin_pb2.GetHostRequest(), metadata=caller.metadata)
    assert (host.active_runs, host.waiting_runs) == (0, 0)


def part(text: str) -> types_pb2.ContentPart:
    return types_pb2.ContentPart(text=text)


BAD_EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("event.type", {"type": ""}),
    ("event.type", {"type": "message"}),
    ("event.type", {"type": "Message.Received"}),
    ("event.type", {"type": "message..received"}),
    ("event.type", {"type": "message.received\n"}),
    ("event.type", {"type": "x." + "y" * 99}),
    ("event.input.text", {"text": "a\0b"}),
    ("event.input.parts[1].text", {"input": {"parts": [part("fine"), part("\0")]}}),
    ("event.event_id", {"event_id": "\0"}),
    ("event.event_id", {"event_id": "x" * 256}),
    ("event.event_id", {"event_id": "é" * 128}),
    ("event.workspace_id", {"workspace_id": "w\0"}),
    ("event.bot_id", {"bot_id": "x" * 256}),
    ("event.conversation_id", {"conversation_id": "x" * 256}),
    ("event.thread_id", {"thread_id": "without a conversation"}),
    ("event.actor.type", {"actor": {"id": "u"}}),
    ("event.actor.name", {"actor": {"type": "user", "name": "\0"}}),
    ("event.subject.data_json", {"subject": {"type": "message", "data_json": "{"}}),
    ("event.data_json", {"data_json": ""}),
    ("event.data_json", {"data_json": "{'a': 1}"}),
    ("event.data_json", {"data_json": '{"a": 1, "a": 2}'}),
    ("event.data_json", {"data_json": "NaN"}),
    ("event.data_json", {"data_json": '{"a": Infinity}'}),
    ("event.data_json", {"data_json": '"\\u0000"'}),
    ("event.data_json", {"data_json": '"\\ud800"'}),
    ("event.data_json", {"data_json": "[" * 65 + "]" * 65}),
    ("event.adapter_extra_json", {"adapter_extra_json": "[]"}),
    ("event.input.message_chain_json", {"input": {"message_chain_json": "x"}}),
    ("event.delivery.surface", {"delivery": {"supports_edit": True}}),
    ("event.raw_ref.location", {"raw_ref": {"size_bytes": 1, "sha256": b"x" * 32}}),
    ("event.raw_ref.sha256", {"raw_ref": {"artifact_id": "a", "size_bytes": 1, "sha256": b"x"}}),
    ("event.time", {"time": {"seconds": 2**60}}),
    ("event.metadata", {"metadata": {str(number): "" for number in range(65)}}),
]


@pytest.mark.parametrize(("field", "fields"), BAD_EVENTS, ids=[
    f"{field}-{number}" for number, (field, _) in enumerate(BAD_EVENTS)
])  # fmt: skip
async def test_field_that_breaks_a_rule_is_named(
    caller: Caller, field: str, fields: dict[str, Any]
) -> None:
    event = message(fields.pop("text", "hello"), **fields)
    for call in (caller.dispatch(event, "default"), caller.submit(event, "default")):
        refusal = await refused(call)
        assert refusal.code == refusal.reason == "INVALID_ARGUMENT"
        assert list(refusal.fields) == [field]
        assert field in refusal.message
        assert refusal.retry_after_seconds is None
        assert "\0" not in refusal.message


async def test_every_fault_of_an_event_is_named_at_once(caller: Caller) -> None:
    event = message("\0", type="", bot_id="\0", data_json="[")
    refusal = await refused(caller.dispatch(event))
    assert set(refusal.fields) == {
        "event.type",
        "event.input.text",
        "event.bot_id",
        "event.data_json",
    }


async def test_request_without_an_event_is_refused(caller: Caller) -> None:
    refusal = await refused(
        caller.gateway.SubmitEvent(gateway_pb2.SubmitEventRequest(), metadata=caller.metadata)
    )
    assert refusal.code == "INVALID_ARGUMENT"
    assert list(refusal.fields) == ["event"]


@pytest.mark.parametrize(
    "text",
    [b"\xed\xa0\x80", b"a\xff\xfe", b"\xc0\x80b"],
    ids=["surrogate", "no UTF-8", "long form"],
)
async def test_text_that_is_no_unicode_is_named(caller: Caller, text: bytes) -> None:
    # Protobuf's own encoders refuse to make these; other programs do not.
    data = gateway_pb2.SubmitEventRequest(event=message("AAA")).SerializeToString()
    for rpc in ("SubmitEvent", "Dispatch"):
        refusal = await refused(send_raw(caller, rpc, data.replace(b"AAA", text)))
        assert refusal.code == refusal.reason == "INVALID_ARGUMENT"
        assert list(refusal.fields) == ["event.input.text"]


async def test_bytes_that_are_no_request_are_said_to_be_none(caller: Caller) -> None:
    refusal = await refused(send_raw(caller, "SubmitEvent", b"\x0a\xff"))
    assert refusal.code == refusal.reason == "INVALID_ARGUMENT"
    assert "runmesh.v1.SubmitEventRequest" in refusal.message


async def test_who_sends_nonsense_must_be_known_first(caller: Caller) -> None:
    refusal = await refused(send_raw(caller.with_key("rmk_unknown"), "SubmitEvent", b"\xff"))
    assert refusal.code == "UNAUTHENTICATED"


async def send_raw(caller: Caller, rpc: str, data: bytes) -> bytes:
    call: Any = caller.channel.unary_stream(f"/runmesh.v1.GatewayService/{rpc}")
    answer: bytes = await call(data, metadata=caller.metadata).read()
    return answer


async def test_event_over_two_mebibytes_is_refused_with_size_and_limit(caller: Caller) -> None:
    refusal = await refused(caller.dispatch(message("x" * (2 * MIB))))
    assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE")
    assert int(refusal.facts["size"]) > int(refusal.facts["limit"]) == 2 * MIB
    assert refusal.retry_after_seconds is None


async def test_message_over_the_transports_limit_costs_only_itself(caller: Caller) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.dispatch(message("x" * (17 * MIB)))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await caller.list(page_size=1)


async def test_agent_that_is_not_there_is_not_found(caller: Caller) -> None:
    await caller.apply(agent("asleep", enabled=False))
    for name in ("no-such-agent", "asleep"):
        for call in (caller.dispatch(message(), name), caller.submit(message(), name)):
            refusal = await refused(call)
            assert refusal.code == refusal.reason == "NOT_FOUND"
            assert refusal.facts["resource"] == name
            assert name in refusal.message


async def test_follow_up_that_the_runner_cannot_is_refused_by_its_field(caller: Caller) -> None:
    refusal = await refused(caller.dispatch(message(), follow_up=gateway_pb2.FOLLOW_UP_STEER))
    assert refusal.code == refusal.reason == "INVALID_ARGUMENT"
    assert "steering" in refusal.fields["follow_up"]


async def test_event_that_matches_no_binding_is_logged_without_a_run(
    caller: Caller, stores: Stores
) -> None:
    event = message(
        type="lonely.event", event_id="lonely-1", bot_id="b", conversation_id="c",
        actor=event_pb2.Actor(type="user", id="u"),
    )  # fmt: skip
    for call in (caller.dispatch(event), caller.submit(event)):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "NO_BINDING")
        for word in ("lonely.event", "'b'", "'c'", "'u'"):
            assert word in refusal.message
    logged = await stores.events.get("", "b", "api", "lonely-1")
    assert logged is not None
    assert logged.run_id is None
    # Even without a run it is what it is.
    other = message("other words", type="lonely.event", event_id="lonely-1", bot_id="b")
    assert (await refused(caller.dispatch(other))).reason == "ALREADY_EXISTS"
