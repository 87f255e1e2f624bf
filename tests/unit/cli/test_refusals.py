"""What the host refuses is told with reason, message, fields and what to do next."""

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from host_service.cli.refusals import Refusal, decode, explain


def refused(
    code: grpc.StatusCode, message: str, *details: Message, raw: bytes | None = None
) -> grpc.aio.AioRpcError:
    packed = []
    for detail in details:
        packed.append(Any())
        packed[-1].Pack(detail)
    status = status_pb2.Status(code=code.value[0], message=message, details=packed)
    metadata = grpc.aio.Metadata(
        ("grpc-status-details-bin", status.SerializeToString() if raw is None else raw)
    )
    return grpc.aio.AioRpcError(
        code, initial_metadata=grpc.aio.Metadata(), trailing_metadata=metadata, details=message
    )


def info(reason: str) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(domain="runmesh", reason=reason)


def test_reason_fields_and_waiting_time_come_from_the_details() -> None:
    bad = error_details_pb2.BadRequest(
        field_violations=[
            error_details_pb2.BadRequest.FieldViolation(field="event.type", description="is empty")
        ]
    )
    retry = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=2, nanos=500_000_000))
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, "no", info("INVALID_ARGUMENT"), bad, retry)
    assert decode(error) == Refusal(
        reason="INVALID_ARGUMENT",
        message="no",
        fields=(("event.type", "is empty"),),
        retry_after_seconds=2.5,
        from_host=True,
    )


def test_a_field_that_the_message_names_already_is_not_told_twice() -> None:
    refusal = Refusal(
        reason="INVALID_ARGUMENT",
        message="event.type: is empty",
        fields=(("event.type", "is empty"), ("event.actor.id", "is too long")),
    )
    assert str(explain(refusal)) == (
        "INVALID_ARGUMENT: event.type: is empty; event.actor.id: is too long"
    )


def test_a_time_to_wait_is_what_to_do_next() -> None:
    refusal = Refusal(reason="OVERLOADED", message="full", retry_after_seconds=1.5)
    assert str(explain(refusal)) == "OVERLOADED: full: try again in 1.5 s"


def test_a_command_knows_better_what_to_do_next() -> None:
    refusal = Refusal(reason="NOT_FOUND", message="there is no run 'x'")
    advice = {"NOT_FOUND": "'runmesh runs list' shows the runs"}
    assert str(explain(refusal, advice)) == (
        "NOT_FOUND: there is no run 'x': 'runmesh runs list' shows the runs"
    )


@pytest.mark.parametrize("raw", [b"", b"\xff\xff not a status"])
def test_a_status_without_readable_details_keeps_code_and_message(raw: bytes) -> None:
    refusal = decode(refused(grpc.StatusCode.UNAVAILABLE, "connection refused", raw=raw))
    assert refusal.reason == "UNAVAILABLE"
    assert refusal.message == "connection refused"
    assert not refusal.from_host
