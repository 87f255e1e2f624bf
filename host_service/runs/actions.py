"""Actions that a run's results ask for: handed on in their order, and waited for by nobody."""

from __future__ import annotations

from collections.abc import Callable

from runmesh.v1 import result_pb2

from host_service.actions.desk import ActionDesk
from host_service.actions.request import ActionRequest
from host_service.authorization.snapshot import Snapshot


class RunActions:
    """Hands the actions of one run to the desk.

    Args:
        snapshot: What the run may do.
        desk: Judges, records and executes them.
        warn: Told of what is not executed: a code and a sentence.
    """

    def __init__(
        self, *, snapshot: Snapshot, desk: ActionDesk, warn: Callable[[str, str], None]
    ) -> None:
        self._snapshot = snapshot
        self._desk = desk
        self._warn = warn

    def take(self, requested: result_pb2.ActionRequested) -> None:
        """Have an action recorded, and executed where nothing is missing.

        Raises:
            StoreError: The journal takes nothing now.
        """
        request = request_of(requested)
        missing = [
            each for each in self._desk.missing(self._snapshot, request) if each != "approval"
        ]
        if missing:
            self._warn(
                "action_not_executed",
                f"the action {request.name!r} was recorded and is not executed: what is missing "
                f"is {', '.join(missing)}",
            )
        _ = self._desk.take(self._snapshot, request)


def request_of(requested: result_pb2.ActionRequested) -> ActionRequest:
    """Return what a result or a call asks for."""
    return ActionRequest(
        name=requested.action,
        idempotency_key=requested.idempotency_key,
        target_json=requested.target_json if requested.HasField("target_json") else None,
        payload_json=requested.payload_json if requested.HasField("payload_json") else None,
        hint=requested.approval_hint,
    )
