"""How an error goes over the wire: a gRPC status with details, small enough to arrive.

A status travels in headers, and a peer refuses headers of more than 8 KiB with a status of its own,
which says nothing of the error. So texts are cut, and the faults that do not fit are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from host_service.errors import FieldFault, HostError

ERROR_DOMAIN = "runmesh"

#: Which gRPC status each reason of the contract has.
CODES: Mapping[str, grpc.StatusCode] = {
    "UNAUTHENTICATED": grpc.StatusCode.UNAUTHENTICATED,
    "UNAUTHORIZED": grpc.StatusCode.PERMISSION_DENIED,
    "NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "INVALID_ARGUMENT": grpc.StatusCode.INVALID_ARGUMENT,
    "PAYLOAD_TOO_LARGE": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "RATE_LIMITED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "OVERLOADED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "NO_BINDING": grpc.StatusCode.FAILED_PRECONDITION,
    "BINDING_CONFLICT": grpc.StatusCode.FAILED_PRECONDITION,
    "SESSION_BUSY": grpc.StatusCode.ABORTED,
    "CONFLICT": grpc.StatusCode.ABORTED,
    "ALREADY_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "SEQUENCE_COMPACTED": grpc.StatusCode.OUT_OF_RANGE,
    "DEADLINE_EXCEEDED": grpc.StatusCode.DEADLINE_EXCEEDED,
    "NOT_IMPLEMENTED": grpc.StatusCode.UNIMPLEMENTED,
    "UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "RUNTIME_ERROR": grpc.StatusCode.INTERNAL,
    "INCOMPATIBLE": grpc.StatusCode.FAILED_PRECONDITION,
}

# Together, with the details in base64, they stay below 8 KiB.
_MESSAGE_BYTES = 2048
_DETAILS_BYTES = 4096
# Of one text in the details: an id of the contract fits twice.
_TEXT_BYTES = 600
# What gRPC writes of a byte in its message that is no printable ASCII: `%E4`.
_ESCAPED_BYTES = 3


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: HostError) -> NoReturn:
    """End a call with the status that an error means."""
    status = status_of(error)
    trailing = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(CODES[error.reason], _cut(error.message, _MESSAGE_BYTES, _sent), trailing)
    raise AssertionError("abort returned")


def status_of(error: HostError) -> status_pb2.Status:
    """Return an error as a status with details."""
    info = error_details_pb2.ErrorInfo(
        reason=error.reason,
        domain=ERROR_DOMAIN,
        metadata={name: _cut(value, _TEXT_BYTES) for name, value in error.facts.items()},
    )
    status = status_pb2.Status(
        code=code_pb2.Code.Value(CODES[error.reason].name),
        message=_cut(error.message, _TEXT_BYTES),
        details=[_packed(info)],
    )
    if error.retry_after_seconds is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(round(error.retry_after_seconds * 1e9))
        status.details.append(_packed(retry))
    if error.faults:
        status.details.append(_packed(_bad_request(error, _DETAILS_BYTES - status.ByteSize())))
    return status


def _bad_request(error: HostError, room_bytes: int) -> error_details_pb2.BadRequest:
    """Return as many of the faults as there is room for, the first in any case."""
    bad = error_details_pb2.BadRequest()
    for fault in error.faults:
        bad.field_violations.append(_violation(fault))
        if len(bad.field_violations) > 1 and bad.ByteSize() > room_bytes:
            del bad.field_violations[-1]
            break
    return bad


def _violation(fault: FieldFault) -> error_details_pb2.BadRequest.FieldViolation:
    return error_details_pb2.BadRequest.FieldViolation(
        field=_cut(fault.field, _TEXT_BYTES),
        description=_cut(f"{fault.rule}; got {fault.got}", _TEXT_BYTES),
    )


def _packed(message: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


def _utf8(character: str) -> int:
    return len(character.encode())


def _sent(character: str) -> int:
    """Return how many bytes gRPC sends for a character of its message."""
    if " " <= character <= "~" and character != "%":
        return 1
    return _ESCAPED_BYTES * _utf8(character)


def _cut(text: str, limit_bytes: int, size_of: Callable[[str], int] = _utf8) -> str:
    """Return a text, or its beginning with a mark where it is longer than a limit."""
    if sum(map(size_of, text)) <= limit_bytes:
        return text
    room = limit_bytes - size_of("…")
    for index, character in enumerate(text):
        room -= size_of(character)
        if room < 0:
            return f"{text[:index]}…"
    return text
