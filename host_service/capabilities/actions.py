"""Actions that runs ask for by a call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from runmesh.v1 import host_api_pb2, result_pb2

from host_service.actions.desk import ActionDesk
from host_service.authorization.tokens import RunAccess
from host_service.runs.actions import request_of
from stores.event_log import EventLog
from stores.records import LogEntry


class Actions:
    """Asks the desk, and says what became of it.

    Args:
        desk: Judges, records and executes them.
        log: Where it is written that a run asked, as its result of that name would be.
        clock: Tells the time.
    """

    def __init__(self, *, desk: ActionDesk, log: EventLog, clock: Callable[[], datetime]) -> None:
        self._desk = desk
        self._log = log
        self._clock = clock

    async def request(
        self, access: RunAccess, request: host_api_pb2.RequestActionRequest
    ) -> host_api_pb2.RequestActionResponse:
        """Have an action executed, or recorded where something is missing.

        Raises:
            AlreadyExists: Its key was used with other content.
        """
        _ = self._log.append_entries([self._entry(access, request.action)])
        action = await self._desk.request(access.snapshot, request_of(request.action))
        response = host_api_pb2.RequestActionResponse(
            status=host_api_pb2.ActionStatus.Value(f"ACTION_STATUS_{action.status.name}"),
            missing=action.missing,
            detail=action.detail,
        )
        if action.result is not None:
            response.result_json = action.result
        return response

    def _entry(self, access: RunAccess, action: result_pb2.ActionRequested) -> LogEntry:
        run_id, at = access.snapshot.run_id, self._clock()
        result = result_pb2.RunResult(run_id=run_id, action_requested=action)
        result.timestamp.FromDatetime(at)
        return LogEntry(
            run_id=run_id, kind="action_requested", at=at, payload=result.SerializeToString()
        )
