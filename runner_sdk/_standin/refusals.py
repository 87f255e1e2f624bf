"""How the stand-in host refuses a call."""

from collections.abc import Mapping

import grpc

from runner_sdk._status import Status, error_of_reason, refusal
from runner_sdk.errors import FieldViolation, HostCallError

_CODES: Mapping[str, grpc.StatusCode] = {
    "UNAUTHENTICATED": grpc.StatusCode.UNAUTHENTICATED,
    "UNAUTHORIZED": grpc.StatusCode.PERMISSION_DENIED,
    "NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "INVALID_ARGUMENT": grpc.StatusCode.INVALID_ARGUMENT,
    "PAYLOAD_TOO_LARGE": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "RATE_LIMITED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "OVERLOADED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "CONFLICT": grpc.StatusCode.ABORTED,
    "ALREADY_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "SEQUENCE_COMPACTED": grpc.StatusCode.OUT_OF_RANGE,
    "DEADLINE_EXCEEDED": grpc.StatusCode.DEADLINE_EXCEEDED,
    "NOT_IMPLEMENTED": grpc.StatusCode.UNIMPLEMENTED,
    "UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "RUNTIME_ERROR": grpc.StatusCode.INTERNAL,
}


def refused(reason: str, message: str, **facts: str) -> HostCallError:
    """Makes the refusal of a call, with facts such as `resource`."""
    return error_of_reason(reason, method="", message=message, metadata=facts)


def not_found(what: str, resource: str) -> HostCallError:
    """Makes the refusal of a call for what the run does not have, existing or not."""
    return refused("NOT_FOUND", f"there is no {what} {resource!r}", resource=resource)


def invalid(field: str, rule: str) -> HostCallError:
    """Makes the refusal of a call with a field that breaks a rule."""
    return error_of_reason(
        "INVALID_ARGUMENT",
        method="",
        message=f"{field}: {rule}",
        violations=(FieldViolation(field, rule),),
    )


def too_large(field: str, size: int, limit: int) -> HostCallError:
    """Makes the refusal of a call with a field that is too large."""
    return refused(
        "PAYLOAD_TOO_LARGE",
        f"{field}: has {size} bytes; the limit is {limit}",
        size=str(size),
        limit=str(limit),
    )


def status_of(error: HostCallError) -> Status:
    """Returns a refusal as gRPC sends it."""
    return refusal(
        _CODES.get(error.reason, grpc.StatusCode.INTERNAL),
        error.reason,
        error.message,
        metadata=error.metadata,
        violations=error.violations,
        retry_after_seconds=error.retry_after_seconds,
    )
