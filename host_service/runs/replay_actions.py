"""Actions of a replay without side effects: recorded as what would have been, never executed.

They are kept for the replay alone. Its keys are not those of the original, whose actions stand as
they do, and nothing can be approved later. The event log of the replay has what was asked for.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from stores.actions import (
    ActionQuery,
    ActionRecord,
    ActionStatus,
    EntryOf,
    PutAction,
)
from stores.errors import ActionConflict
from stores.event_log import EventLog
from stores.records import Page

#: What an execution lacks in such a replay, beside what it would lack otherwise.
SIDE_EFFECTS = "side_effects"
_DETAIL = "a replay without side effects records actions and executes none"


class ReplayedActions:
    """Implements `stores.actions.Actions` in memory: every action is recorded, and no more.

    Args:
        log: Where the entries go.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._actions: dict[tuple[str, str], ActionRecord] = {}

    def put(self, action: ActionRecord, *, entry: EntryOf) -> Future[PutAction]:
        """Record an action, unless its key is known; see the protocol."""
        put: Future[PutAction] = asyncio.get_running_loop().create_future()
        key = (action.scope_key, action.idempotency_key)
        known = self._actions.get(key)
        if known is not None:
            if known.digest != action.digest:
                put.set_exception(ActionConflict(known.action_id, known.run_id))
            else:
                put.set_result(PutAction(known, is_new=False))
            return put
        recorded = self._actions[key] = replace(
            action,
            status=ActionStatus.RECORDED,
            missing=(*action.missing, SIDE_EFFECTS),
            detail=_DETAIL,
            started_at=None,
        )
        made = entry(recorded)
        if made is not None:
            written = self._log.append_entries([made])
            written.add_done_callback(lambda done: _conclude(done, put, recorded))
        else:
            put.set_result(PutAction(recorded, is_new=True))
        return put

    def begin(
        self,
        action_id: str,  # noqa: ARG002 - none waits for approval
        *,
        at: datetime,  # noqa: ARG002
        decided_by: str,  # noqa: ARG002
        detail: str,  # noqa: ARG002
        host_id: str,  # noqa: ARG002
        host_incarnation: str,  # noqa: ARG002
        entry: EntryOf,  # noqa: ARG002
    ) -> Future[ActionRecord | None]:
        """Begin nothing."""
        return _nothing()

    def reject(
        self,
        action_id: str,  # noqa: ARG002 - none waits for approval
        *,
        at: datetime,  # noqa: ARG002
        decided_by: str,  # noqa: ARG002
        detail: str,  # noqa: ARG002
        entry: EntryOf,  # noqa: ARG002
    ) -> Future[ActionRecord | None]:
        """Reject nothing."""
        return _nothing()

    def settle(
        self,
        action_id: str,  # noqa: ARG002 - none is executed
        status: ActionStatus,  # noqa: ARG002
        *,
        at: datetime,  # noqa: ARG002
        host_incarnation: str,  # noqa: ARG002
        result: str | None = None,  # noqa: ARG002
        detail: str = "",  # noqa: ARG002
        entry: EntryOf,  # noqa: ARG002
    ) -> Future[ActionRecord | None]:
        """Settle nothing."""
        return _nothing()

    def fail_lost(
        self,
        now: datetime,  # noqa: ARG002 - none is lost
        *,
        detail: str,  # noqa: ARG002
        entry: EntryOf,  # noqa: ARG002
    ) -> Future[Sequence[ActionRecord]]:
        """Let nothing fail."""
        failed: Future[Sequence[ActionRecord]] = asyncio.get_running_loop().create_future()
        failed.set_result(())
        return failed

    async def get(self, action_id: str) -> ActionRecord | None:
        """Return an action, or `None`."""
        found = (each for each in self._actions.values() if each.action_id == action_id)
        return next(found, None)

    async def list(
        self,
        query: ActionQuery,  # noqa: ARG002 - a replay has few
        *,
        limit: int = 50,
        after: str | None = None,  # noqa: ARG002
    ) -> Page[ActionRecord, str]:
        """Return the newest actions."""
        return Page(tuple(reversed(self._actions.values()))[:limit], None)


def _conclude(written: Future[None], put: Future[PutAction], recorded: ActionRecord) -> None:
    if put.done():
        return
    error = None if written.cancelled() else written.exception()
    if error is not None:
        put.set_exception(error)
    else:
        put.set_result(PutAction(recorded, is_new=True))


def _nothing() -> Future[ActionRecord | None]:
    nothing: Future[ActionRecord | None] = asyncio.get_running_loop().create_future()
    nothing.set_result(None)
    return nothing
