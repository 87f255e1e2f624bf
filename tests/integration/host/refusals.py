"""What a refused call says, in its status and in the details of it."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import grpc.aio
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status with its details.

    Attributes:
        code: The name of gRPC's code.
        reason: Of `ErrorInfo`.
        message: For people.
        facts: Of `ErrorInfo`.
        fields: Of `BadRequest`: what is wrong, by field.
        retry_after_seconds: Of `RetryInfo`; None without.
    """

    code: str
    reason: str
    message: str
    facts: dict[str, str]
    fields: dict[str, str]
    retry_after_seconds: float | None


async def refused(call: Awaitable[Any]) -> Refusal:
    """Awaits a call that must be refused, and returns how."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return refusal_of(caught.value)


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """Returns what an error says; fails where it lacks what the contract promises."""
    # An AioRpcError is what a call is to this function: metadata, code and details.
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    assert status is not None, f"a status without details: {error}"
    info, bad, retry = (
        error_details_pb2.ErrorInfo(),
        error_details_pb2.BadRequest(),
        error_details_pb2.RetryInfo(),
    )
    found = [
        name
        for name, detail in (("info", info), ("bad", bad), ("retry", retry))
        if any(each.Unpack(detail) for each in status.details)
    ]
    assert "info" in found
    assert info.domain == "runmesh"
    return Refusal(
        code=error.code().name,
        reason=info.reason,
        message=status.message,
        facts=dict(info.metadata),
        fields={each.field: each.description for each in bad.field_violations},
        retry_after_seconds=retry.retry_delay.ToNanoseconds() / 1e9 if "retry" in found else None,
    )
