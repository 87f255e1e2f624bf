"""AdminService's calls about what runs asked to have done: listed, shown, decided."""

from __future__ import annotations

from runmesh.admin.v1 import actions_pb2, admin_pb2_grpc
from runmesh.v1 import host_api_pb2, result_pb2

from host_service import wire
from host_service.actions.desk import ActionDesk
from host_service.admin_audit import AdminAudit
from host_service.interceptors import Context, current_caller
from host_service.limits import Limits
from host_service.pages import PageTokens
from host_service.requests import RequestCheck
from stores.actions import ActionQuery, ActionRecord, Actions, ActionStatus

# An action may be some megabytes large: few are read at a time.
_READ_AT_ONCE = 8


class ActionCalls(admin_pb2_grpc.AdminServiceServicer):
    """Decodes, does one thing, encodes. A part of `AdminServicer`, which gives it what it needs.

    Attributes:
        _desk: Decides actions, and executes them.
        _actions: Where they are.
        _check: Refuses bad requests.
        _pages: Makes page tokens.
        _limits: How much a page may hold.
        _audit: Where decisions are written down.
    """

    _desk: ActionDesk
    _actions: Actions
    _check: RequestCheck
    _pages: PageTokens
    _limits: Limits
    _audit: AdminAudit

    async def ListActions(
        self, request: actions_pb2.ListActionsRequest, context: Context
    ) -> actions_pb2.ListActionsResponse:
        """List actions, newest first."""
        self._check.require(request)
        query = ActionQuery(
            status=_status(request.status),
            agent_id=request.agent_id or None,
            run_id=request.run_id or None,
        )
        actions, cursor = await self._read_actions(
            query, after=self._pages.read(request), size=self._pages.size(request.page_size)
        )
        return actions_pb2.ListActionsResponse(
            actions=actions, next_page_token=self._pages.issue(request, cursor)
        )

    async def _read_actions(
        self, query: ActionQuery, *, after: str | None, size: int
    ) -> tuple[list[actions_pb2.Action], str | None]:
        """Return actions up to as many, and as many bytes, as a page may have; one always fits."""
        actions: list[actions_pb2.Action] = []
        room = self._limits.page_bytes
        while True:
            limit = min(size - len(actions), _READ_AT_ONCE)
            page = await self._actions.list(query, limit=limit, after=after)
            for record in page.items:
                action = action_message(record)
                room -= action.ByteSize()
                if room < 0 and actions:
                    return actions, actions[-1].action_id
                actions.append(action)
            after = page.next_cursor
            if after is None or len(actions) == size:
                return actions, after

    async def GetAction(
        self, request: actions_pb2.GetActionRequest, context: Context
    ) -> actions_pb2.GetActionResponse:
        """Read one action."""
        self._check.require(request)
        action = await self._desk.get(request.action_id)
        return actions_pb2.GetActionResponse(action=action_message(action))

    async def DecideAction(
        self, request: actions_pb2.DecideActionRequest, context: Context
    ) -> actions_pb2.DecideActionResponse:
        """Approve or reject an action; what is approved is executed before the answer."""
        self._check.require(request)
        caller = current_caller().key_id
        with self._audit.watched("DecideAction", request.action_id) as changed:
            if request.decision == actions_pb2.ACTION_DECISION_APPROVE:
                action = await self._desk.approve(
                    request.action_id, caller=caller, reason=request.reason
                )
                changed.append(f"approve {request.action_id}")
            else:
                action = await self._desk.reject(
                    request.action_id, caller=caller, reason=request.reason
                )
                changed.append(f"reject {request.action_id}")
        return actions_pb2.DecideActionResponse(action=action_message(action))


def _status(number: int) -> ActionStatus | None:
    """Return the status that a request narrows by; None for none, and for one not known here."""
    word = wire.enum_word(host_api_pb2.ActionStatus, number)
    return ActionStatus[word.upper()] if word else None


def action_message(action: ActionRecord) -> actions_pb2.Action:
    """Return an action as the contract has it."""
    message = actions_pb2.Action(
        action_id=action.action_id,
        action=action.name,
        target_json=action.target,
        payload_json=action.payload,
        idempotency_key=action.idempotency_key,
        approval_hint=result_pb2.ApprovalHint.ValueType(action.hint),
        status=wire.enum_number(host_api_pb2.ActionStatus, action.status.name.lower()),
        missing=action.missing,
        result_json=action.result,
        detail=action.detail,
        run_id=action.run_id,
        agent_id=action.agent_id,
        runner_id=action.runner_id,
        workspace_id=action.workspace,
        requested_at=wire.timestamp(action.requested_at),
        decided_by=action.decided_by or "",
    )
    for name in ("decided_at", "started_at", "ended_at"):
        at = getattr(action, name)
        if at is not None:
            getattr(message, name).FromDatetime(at)
    return message
