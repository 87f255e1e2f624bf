"""Errors on the wire: `google.rpc.Status` with the contract's reason in its details, both ways.

The details' types are imported where an error is made or read, so that starting does not wait for
them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError, Message
from grpc.aio import AioRpcError

from runner_sdk import errors

_Status: TypeAlias = Any
_DOMAIN = "runmesh"
_DETAILS_KEY = "grpc-status-details-bin"

_CLASSES: Mapping[str, type[errors.HostCallError]] = {
    "UNAUTHENTICATED": errors.Unauthenticated,
    "UNAUTHORIZED": errors.Unauthorized,
    "NOT_FOUND": errors.NotFound,
    "INVALID_ARGUMENT": errors.InvalidArgument,
    "PAYLOAD_TOO_LARGE": errors.PayloadTooLarge,
    "RATE_LIMITED": errors.RateLimited,
    "OVERLOADED": errors.Overloaded,
    "CONFLICT": errors.Conflict,
    "ALREADY_EXISTS": errors.AlreadyExists,
    "SEQUENCE_COMPACTED": errors.PastRetention,
    "DEADLINE_EXCEEDED": errors.DeadlineExceeded,
    "NOT_IMPLEMENTED": errors.NotImplementedByHost,
    "UNAVAILABLE": errors.HostUnavailable,
    "RUNTIME_ERROR": errors.RuntimeFailure,
}

# What a status means that comes without details: from gRPC itself, or from something between.
_REASON_OF_CODE: Mapping[grpc.StatusCode, str] = {
    grpc.StatusCode.UNAUTHENTICATED: "UNAUTHENTICATED",
    grpc.StatusCode.PERMISSION_DENIED: "UNAUTHORIZED",
    grpc.StatusCode.NOT_FOUND: "NOT_FOUND",
    grpc.StatusCode.INVALID_ARGUMENT: "INVALID_ARGUMENT",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "OVERLOADED",
    grpc.StatusCode.ABORTED: "CONFLICT",
    grpc.StatusCode.ALREADY_EXISTS: "ALREADY_EXISTS",
    grpc.StatusCode.OUT_OF_RANGE: "SEQUENCE_COMPACTED",
    grpc.StatusCode.DEADLINE_EXCEEDED: "DEADLINE_EXCEEDED",
    grpc.StatusCode.UNIMPLEMENTED: "NOT_IMPLEMENTED",
    grpc.StatusCode.UNAVAILABLE: "UNAVAILABLE",
    # A call that was cut off at the other end; one that is cancelled here raises CancelledError.
    grpc.StatusCode.CANCELLED: "UNAVAILABLE",
}

# How gRPC, on either side, says that a message is over the transport's own limit.
_TOO_LARGE = "message larger than max"


class Status(grpc.Status):
    """A status to end a call with."""

    def __init__(self, code: grpc.StatusCode, details: str, packed: bytes) -> None:
        self.code = code
        self.details = details
        self.trailing_metadata = ((_DETAILS_KEY, packed),)


def refusal(
    code: grpc.StatusCode,
    reason: str,
    message: str,
    *,
    metadata: Mapping[str, str] | None = None,
    violations: Iterable[errors.FieldViolation] = (),
    retry_after_seconds: float | None = None,
) -> Status:
    """Makes the status of a refused call."""
    from google.protobuf import any_pb2
    from google.rpc import error_details_pb2, status_pb2

    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=reason, domain=_DOMAIN, metadata=metadata or {})
    ]
    fields = [
        error_details_pb2.BadRequest.FieldViolation(field=entry.field, description=entry.rule)
        for entry in violations
    ]
    if fields:
        details.append(error_details_pb2.BadRequest(field_violations=fields))
    if retry_after_seconds is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(retry_after_seconds * 1000))
        details.append(retry)
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return Status(code, message, status.SerializeToString())


def host_call_error(method: str, error: AioRpcError) -> errors.HostCallError:
    """Reads a failed call's status and returns it as one of the SDK's exceptions."""
    from google.rpc import error_details_pb2, status_pb2

    reason = _reason_of(error)
    metadata: dict[str, str] = {}
    violations: list[errors.FieldViolation] = []
    retry_after_seconds: float | None = None
    for packed in _read(status_pb2.Status(), error).details:
        info = error_details_pb2.ErrorInfo()
        request = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        if packed.Unpack(info) and info.domain == _DOMAIN:
            reason = info.reason
            metadata = dict(info.metadata)
        elif packed.Unpack(request):
            violations += [
                errors.FieldViolation(violation.field, violation.description)
                for violation in request.field_violations
            ]
        elif packed.Unpack(retry):
            retry_after_seconds = retry.retry_delay.ToMilliseconds() / 1000
    return error_of_reason(
        reason,
        method=method,
        message=error.details() or error.code().name,
        metadata=metadata,
        violations=tuple(violations),
        retry_after_seconds=retry_after_seconds,
    )


def error_of_reason(
    reason: str,
    *,
    method: str,
    message: str,
    metadata: Mapping[str, str] | None = None,
    violations: tuple[errors.FieldViolation, ...] = (),
    retry_after_seconds: float | None = None,
) -> errors.HostCallError:
    """Makes the exception of one of the contract's reasons; a plain one of an unknown one."""
    kind = _CLASSES.get(reason, errors.HostCallError)
    return kind(
        method=method,
        reason=reason,
        message=message,
        metadata=metadata,
        violations=violations,
        retry_after_seconds=retry_after_seconds,
    )


def _reason_of(error: AioRpcError) -> str:
    """Says what a status means by itself; details, where it has some, say it better."""
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in (error.details() or ""):
        return "PAYLOAD_TOO_LARGE"
    return _REASON_OF_CODE.get(error.code(), "RUNTIME_ERROR")


def _read(status: _Status, error: AioRpcError) -> _Status:
    """Fills a `google.rpc.Status` with an error's details; it stays empty where there are none."""
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                status.ParseFromString(value)
            except DecodeError:
                # Whatever stands between can send anything: the code still says what happened.
                status.Clear()
    return status
