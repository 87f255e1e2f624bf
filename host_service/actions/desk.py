"""Where runs ask for actions, and people decide them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from host_service.actions.entries import entry_at
from host_service.actions.executors import ActionExecutors, ExecutionFailed, ExecutorAnswer
from host_service.actions.request import ActionRequest, scope_key
from host_service.agents.approval import needs_approval
from host_service.authorization.snapshot import Snapshot
from host_service.errors import AlreadyExists, Conflict, NotFound, Unavailable
from host_service.identity import new_id
from stores.actions import ActionQuery, ActionRecord, Actions, ActionStatus, PutAction
from stores.audit import Audit, AuditOutcome, AuditRecord
from stores.errors import ActionConflict

_log = logging.getLogger("runmesh.actions")

_LOST = (
    "the host was lost while it was executed: whether it took effect is not known, and it is not "
    "tried again"
)
_STOPPED = (
    "the host was stopped while it was executed: whether it took effect is not known, and it is "
    "not tried again"
)

# A stop waits so long for what executes; executors have times of their own, which may be longer.
_GRACE_SECONDS = 10.0


class ActionDesk:
    """Judges, records and executes actions.

    Args:
        store: Where they are.
        executors: Execute them.
        audit: Where executions are written down.
        clock: Tells the time.
        host_id: This host.
        host_incarnation: This start of it.
        most_executing: How many are executed at once; more wait for their turn.
    """

    def __init__(
        self,
        *,
        store: Actions,
        executors: ActionExecutors,
        audit: Audit,
        clock: Callable[[], datetime],
        host_id: str,
        host_incarnation: str,
        most_executing: int = 64,
    ) -> None:
        self._store = store
        self._executors = executors
        self._audit = audit
        self._clock = clock
        self._host_id = host_id
        self._incarnation = host_incarnation
        self._most_executing = most_executing
        self._turns = asyncio.Semaphore(most_executing)
        self._executing: dict[str, asyncio.Task[ActionRecord]] = {}
        self._tasks: set[asyncio.Task[ActionRecord]] = set()

    def over(self, store: Actions) -> ActionDesk:
        """Return the desk whose actions are in a store: this one, or one like it."""
        if store is self._store:
            return self
        return ActionDesk(
            store=store,
            executors=self._executors,
            audit=self._audit,
            clock=self._clock,
            host_id=self._host_id,
            host_incarnation=self._incarnation,
            most_executing=self._most_executing,
        )

    def missing(self, snapshot: Snapshot, request: ActionRequest) -> tuple[str, ...]:
        """Return what an execution lacks: `manifest`, `policy`, `executor`, `approval`."""
        lacks = {
            "manifest": request.name not in snapshot.declared_actions,
            "policy": request.name not in snapshot.actions,
            "executor": self._executors.find(request.name) is None,
            "approval": needs_approval(
                snapshot.approval,
                snapshot.approval_rules,
                action=request.name,
                target_json=request.target_json,
                payload_json=request.payload_json,
            ),
        }
        # What the manifest does not declare cannot be granted: to say so as well helps nobody.
        lacks["policy"] = lacks["policy"] and not lacks["manifest"]
        return tuple(name for name, is_missing in lacks.items() if is_missing)

    async def request(self, snapshot: Snapshot, request: ActionRequest) -> ActionRecord:
        """Record an action and execute it if nothing is missing; return it as it stands then.

        A caller who is cancelled takes nothing along.

        Raises:
            AlreadyExists: The key was used with other content.
        """
        return await asyncio.shield(self.take(snapshot, request))

    def take(self, snapshot: Snapshot, request: ActionRequest) -> asyncio.Task[ActionRecord]:
        """Do what `request` does without being waited for.

        The action is in the journal when this returns, ahead of whatever is handed in later.

        Raises:
            StoreError: At once; the journal takes nothing now.
        """
        put = self._put(snapshot, request)
        task = asyncio.create_task(self._see_through(put, request))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[ActionRecord]) -> None:
        self._tasks.discard(task)
        # Asked for, so that nobody is told of an error that nobody waited for.
        if not task.cancelled():
            task.exception()

    def _put(self, snapshot: Snapshot, request: ActionRequest) -> asyncio.Future[PutAction]:
        missing, now = self.missing(snapshot, request), self._clock()
        status = ActionStatus.RECORDED
        if not missing:
            status = ActionStatus.EXECUTING
        elif missing == ("approval",):
            status = ActionStatus.AWAITING_APPROVAL
        action = ActionRecord(
            action_id=new_id(),
            scope_key=scope_key(snapshot),
            idempotency_key=request.idempotency_key,
            digest=request.digest(),
            run_id=snapshot.run_id,
            workspace=snapshot.identity.workspace,
            agent_id=snapshot.agent_id,
            runner_id=snapshot.runner_id,
            name=request.name,
            target=request.target_json,
            payload=request.payload_json,
            hint=request.hint,
            status=status,
            missing=missing,
            requested_at=now,
            started_at=now if status is ActionStatus.EXECUTING else None,
            host_id=self._host_id,
            host_incarnation=self._incarnation,
        )
        return self._store.put(action, entry=entry_at(now))

    async def _see_through(
        self, put: asyncio.Future[PutAction], request: ActionRequest
    ) -> ActionRecord:
        try:
            stored = await put
        except ActionConflict as error:
            raise AlreadyExists(
                f"the idempotency key {request.idempotency_key!r} was used with other content",
                facts={"resource": request.idempotency_key},
            ) from error
        action = stored.action
        if action.status is not ActionStatus.EXECUTING:
            return action
        if stored.is_new:
            return await self._start(action)
        running = self._executing.get(action.action_id)
        return action if running is None else await asyncio.shield(running)

    async def _start(self, action: ActionRecord) -> ActionRecord:
        """Execute what is stored as executing, and return it when its outcome is stored."""
        task = asyncio.create_task(self._execute(action), name=f"action {action.action_id}")
        self._executing[action.action_id] = task
        task.add_done_callback(lambda _: self._executing.pop(action.action_id, None))
        return await asyncio.shield(task)

    async def _execute(self, action: ActionRecord) -> ActionRecord:
        began = time.monotonic()
        status, answer = ActionStatus.FAILED, ExecutorAnswer()
        try:
            executor = self._executors.find(action.name)
            if executor is None:
                answer.detail = "this host has no executor for it"
            else:
                async with self._turns:
                    answer = await executor.execute(action)
                status = ActionStatus.EXECUTED
        except ExecutionFailed as failure:
            answer = ExecutorAnswer(detail=str(failure))
        except asyncio.CancelledError:
            # Only a stop of the host cancels it: what is known is still written.
            answer = ExecutorAnswer(detail=_STOPPED)
        except Exception:  # noqa: BLE001 - whatever it is, it is the end of this action alone
            _log.exception("action %s failed inside the host", action.action_id)
            answer = ExecutorAnswer(detail="the host could not execute it; its log says why")
        self._write_down(action, status, time.monotonic() - began)
        return await self._settle(action, status, answer)

    async def _settle(
        self, action: ActionRecord, status: ActionStatus, answer: ExecutorAnswer
    ) -> ActionRecord:
        now = self._clock()
        settled = await self._store.settle(
            action.action_id,
            status,
            at=now,
            host_incarnation=self._incarnation,
            result=answer.result_json,
            detail=answer.detail,
            entry=entry_at(now),
        )
        if settled is None:
            # Another host took this one for lost, and has said so; or its run was purged.
            settled = await self._store.get(action.action_id)
        return settled or replace(action, status=status, ended_at=now, detail=answer.detail)

    def _write_down(self, action: ActionRecord, status: ActionStatus, seconds: float) -> None:
        is_done = status is ActionStatus.EXECUTED
        self._audit.append(
            AuditRecord(
                at=self._clock(),
                rpc="ExecuteAction",
                outcome=AuditOutcome.DONE if is_done else AuditOutcome.FAILED,
                run_id=action.run_id,
                runner_id=action.runner_id,
                caller=action.decided_by,
                resource=action.name,
                scope=action.action_id,
                duration_seconds=seconds,
            )
        )

    async def approve(self, action_id: str, *, caller: str, reason: str = "") -> ActionRecord:
        """Execute an action that waits for approval; return it when that has ended.

        A caller who is cancelled takes nothing along. Again is nothing.

        Args:
            action_id: The action.
            caller: Who approves it.
            reason: Why, for the event log.

        Raises:
            NotFound: There is no such action.
            Conflict: It does not wait for approval, and was not approved either.
            Unavailable: This host has no executor for it; nothing was decided.
        """
        return await asyncio.shield(asyncio.create_task(self._approve(action_id, caller, reason)))

    async def _approve(self, action_id: str, caller: str, reason: str) -> ActionRecord:
        action = await self.get(action_id)
        if self._executors.find(action.name) is None:
            raise Unavailable(
                f"this host has no executor for {action.name!r}: approve it on one that has, or "
                "configure one; nothing was decided"
            )
        now = self._clock()
        begun = await self._store.begin(
            action_id,
            at=now,
            decided_by=caller,
            detail=reason,
            host_id=self._host_id,
            host_incarnation=self._incarnation,
            entry=entry_at(now),
        )
        if begun is not None:
            return await self._start(begun)
        action = await self.get(action_id)
        was_approved = action.decided_by and action.status is not ActionStatus.REJECTED
        if not was_approved:
            raise _not_waiting(action)
        if action.status is not ActionStatus.EXECUTING:
            return action
        running = self._executing.get(action_id)
        # Without a task it ended while it was read, or another host executes it.
        return await (self.get(action_id) if running is None else asyncio.shield(running))

    async def reject(self, action_id: str, *, caller: str, reason: str) -> ActionRecord:
        """Say that an action will not be executed. Again is nothing.

        Raises:
            NotFound: There is no such action.
            Conflict: It does not wait for approval.
        """
        now = self._clock()
        rejected = await self._store.reject(
            action_id, at=now, decided_by=caller, detail=reason, entry=entry_at(now)
        )
        if rejected is not None:
            return rejected
        action = await self.get(action_id)
        if action.status is not ActionStatus.REJECTED:
            raise _not_waiting(action)
        return action

    async def get(self, action_id: str) -> ActionRecord:
        """Return an action.

        Raises:
            NotFound: There is none.
        """
        action = await self._store.get(action_id)
        if action is None:
            raise NotFound("action", action_id)
        return action

    async def recover(self) -> None:
        """Let actions fail that were executing on a host that is gone."""
        executing = await self._store.list(ActionQuery(status=ActionStatus.EXECUTING), limit=1)
        if not executing.items:
            # Nearly always: nobody's writes need wait for a look.
            return
        now = self._clock()
        for action in await self._store.fail_lost(now, detail=_LOST, entry=entry_at(now)):
            _log.warning("action %s was executing on a host that is gone", action.action_id)

    async def close(self) -> None:
        """Give what executes some time to end; then end it, as of unknown effect."""
        if self._executing:
            await asyncio.wait(set(self._executing.values()), timeout=_GRACE_SECONDS)
        for task in self._executing.values():
            task.cancel()
        while self._tasks or self._executing:
            await asyncio.wait({*self._tasks, *self._executing.values()})


def _not_waiting(action: ActionRecord) -> Conflict:
    status = action.status.name.lower().replace("_", " ")
    return Conflict(
        f"action {action.action_id!r} does not wait for approval: it is {status}",
        facts={"resource": action.action_id, "status": action.status.name},
    )
