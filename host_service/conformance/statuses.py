"""How a call ended, in words, and what a runner's author can do about it."""

from __future__ import annotations

from typing import Final

import grpc

from host_service.conformance.findings import Failed
from host_service.conformance.recorded_run import RecordedRun

#: What to do about a call other than `Run`, by how it ended.
CALL_ADVICE: Final = {
    grpc.StatusCode.UNIMPLEMENTED: "serve the method: register its service with the gRPC server",
    grpc.StatusCode.DEADLINE_EXCEEDED: "answer at once: do nothing in this call that can wait",
    grpc.StatusCode.UNAVAILABLE: "the process ended or closed its connections: see what it wrote",
}
_RUN_ADVICE: Final = {
    grpc.StatusCode.UNIMPLEMENTED: "serve runmesh.v1.RunService",
    grpc.StatusCode.UNAVAILABLE: "the process ended or closed the connection: see what it wrote, "
    "and catch what this input makes of it",
    grpc.StatusCode.NOT_FOUND: "serve every runner that ListRunners names",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "take messages of 16 MiB "
    "(grpc.max_receive_message_length), and as many runs as max_concurrent_runs says",
    grpc.StatusCode.INVALID_ARGUMENT: "take whatever the contract allows: what is optional "
    "may be absent, and what is unknown is ignored",
}


def must_be_well(run: RecordedRun) -> None:
    """Raises Failed for a run whose call failed: what fails in a run is a `run_failed` result."""
    if run.status is not grpc.StatusCode.OK:
        raise Failed(
            expected=f"{run.label} to end with status OK",
            got=told(run.status, run.details),
            advice=_RUN_ADVICE.get(
                run.status or grpc.StatusCode.UNKNOWN,
                "catch what goes wrong in a run and send run_failed; a status is for runs that "
                "were never begun",
            ),
        )


def told(status: grpc.StatusCode | None, details: str | None) -> str:
    """A status in words."""
    name = status.name if status is not None else "no status"
    return f"{name}: {details}" if details else name
