"""What the event log says of actions.

An entry of kind `action_requested` holds the result that asked, in the contract's encoding, as the
runner sent it or as it would have been had `RequestAction` been a result. Each further step is an
entry of a kind of its own, `action_executing`, `action_awaiting_approval`, `action_recorded`,
`action_executed`, `action_failed` or `action_rejected`, and holds a JSON object::

    {
        "action_id": ...,
        "action": ...,
        "idempotency_key": ...,
        "missing": [...],
        "detail": ...,
        "decided_by": ...,
        "result": ...,
    }

Names without a value are left out.
"""

from __future__ import annotations

import json
from datetime import datetime

from stores.actions import ActionRecord, EntryOf
from stores.records import LogEntry


def entry_at(at: datetime) -> EntryOf:
    """Return what makes the entry of the step that an action takes at a time."""

    def entry(action: ActionRecord) -> LogEntry:
        return LogEntry(
            run_id=action.run_id,
            kind=f"action_{action.status.name.lower()}",
            at=at,
            payload=_payload(action).encode(),
        )

    return entry


def _payload(action: ActionRecord) -> str:
    told = {
        "action_id": action.action_id,
        "action": action.name,
        "idempotency_key": action.idempotency_key,
        "missing": list(action.missing),
        "detail": action.detail,
        "decided_by": action.decided_by,
    }
    members = [
        f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in told.items()
        if value
    ]
    if action.result is not None:
        # JSON as it came: through Python its numbers could change.
        members.append(f'"result": {action.result}')
    return f"{{{', '.join(members)}}}"
