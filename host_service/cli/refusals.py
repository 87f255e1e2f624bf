"""Turns a failed call into what a person reads: reason, message, fields, and what to do next."""

from collections.abc import Mapping
from dataclasses import dataclass

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from host_service.cli.failures import CommandError

_DETAILS_KEY = "grpc-status-details-bin"
_ADVICE = {
    "UNAUTHENTICATED": "set RUNMESH_API_KEY to a key that 'runmesh keys create' made",
    "UNAUTHORIZED": "use a key of another role: 'runmesh keys list' shows them",
    "NO_BINDING": "'runmesh bindings list' shows which events reach which agent",
    "BINDING_CONFLICT": "'runmesh bindings list' shows both",
    "SESSION_BUSY": "'runmesh runs list --status running' shows what it is busy with",
    "CONFLICT": "somebody else changed it meanwhile: try again",
    "DEADLINE_EXCEEDED": "the host did not answer in time: try again",
    "UNAVAILABLE": "try again in a moment",
    "RUNTIME_ERROR": "the host's log says more",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A failed call.

    Attributes:
        reason: The contract's reason; the gRPC code's name when the host gave none.
        message: What the host says, for people.
        fields: Fields that break rules, each with what is wrong with it.
        retry_after_seconds: When trying again may help, or None.
        from_host: Whether the host itself answered, and not the transport under it.
    """

    reason: str
    message: str
    fields: tuple[tuple[str, str], ...] = ()
    retry_after_seconds: float | None = None
    from_host: bool = False


def decode(error: grpc.aio.AioRpcError) -> Refusal:
    """Reads the status of a failed call, with its `google.rpc` details where there are any."""
    code = error.code().name
    message = error.details() or code.lower().replace("_", " ")
    status = _rich_status(error)
    if status is None:
        return Refusal(reason=code, message=message)
    reason, fields, retry_after_seconds = code, [], None
    info = error_details_pb2.ErrorInfo()
    bad_request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(bad_request):
            fields += [(item.field, item.description) for item in bad_request.field_violations]
        elif detail.Unpack(retry):
            retry_after_seconds = retry.retry_delay.ToTimedelta().total_seconds()
    return Refusal(
        reason=reason,
        message=status.message or message,
        fields=tuple(fields),
        retry_after_seconds=retry_after_seconds,
        from_host=bool(info.reason),
    )


def explain(refusal: Refusal, advice: Mapping[str, str] | None = None) -> CommandError:
    """Makes the failure of a command out of a refusal.

    Args:
        refusal: What the host said.
        advice: What to do next, by reason, where the command knows better than the general words.
    """
    untold = [f"{name}: {text}" for name, text in refusal.fields if text not in refusal.message]
    message = "; ".join([f"{refusal.reason}: {refusal.message}", *untold])
    following = (advice or {}).get(refusal.reason) or _ADVICE.get(refusal.reason, "")
    if refusal.retry_after_seconds is not None:
        following = f"try again in {refusal.retry_after_seconds:g} s"
    return CommandError(message.rstrip("."), following)


def _rich_status(error: grpc.aio.AioRpcError) -> status_pb2.Status | None:
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                # Some proxy's: the plain status still tells what there is to tell.
                return None
    return None
