"""Between actions and rows."""

from __future__ import annotations

import json

from stores.actions import ActionRecord, ActionStatus
from stores.sql.connection import Row
from stores.sql.rows import Encoded
from stores.sql.tables import actions
from stores.sql.values import (
    check_ids,
    check_integers,
    check_keys,
    check_text,
    microseconds,
    optional_microseconds,
    optional_time,
    time,
)

_KIND = "action"


def action_row(action: ActionRecord) -> Encoded:
    """Check and encode an action.

    Raises:
        InvalidRecord: A field breaks its rule.
    """
    check_ids(
        _KIND,
        action_id=action.action_id,
        idempotency_key=action.idempotency_key,
        run_id=action.run_id,
        workspace=action.workspace,
        agent_id=action.agent_id,
        runner_id=action.runner_id,
        name=action.name,
        decided_by=action.decided_by,
        host_id=action.host_id,
        host_incarnation=action.host_incarnation,
    )
    check_keys(_KIND, scope_key=action.scope_key)
    check_integers(_KIND, hint=action.hint)
    for name in ("target", "payload", "result", "detail"):
        check_text(_KIND, name, getattr(action, name))
    return {
        "action_id": action.action_id,
        "scope_key": action.scope_key,
        "idempotency_key": action.idempotency_key,
        "digest": action.digest,
        "run_id": action.run_id,
        "workspace": action.workspace,
        "agent_id": action.agent_id,
        "runner_id": action.runner_id,
        "name": action.name,
        "target": action.target,
        "payload": action.payload,
        "hint": action.hint,
        "status": int(action.status),
        "missing": json.dumps(action.missing),
        "result": action.result,
        "detail": action.detail,
        "requested_at": microseconds(_KIND, "requested_at", action.requested_at),
        "decided_at": optional_microseconds(_KIND, "decided_at", action.decided_at),
        "decided_by": action.decided_by,
        "started_at": optional_microseconds(_KIND, "started_at", action.started_at),
        "ended_at": optional_microseconds(_KIND, "ended_at", action.ended_at),
        "host_id": action.host_id,
        "host_incarnation": action.host_incarnation,
    }


def action_record(row: Row) -> ActionRecord:
    """Decode a row of all columns, in their order."""
    told = dict(zip(actions.c.keys(), row, strict=True))
    return ActionRecord(
        **(
            told
            | {
                "digest": bytes(told["digest"]),
                "status": ActionStatus(told["status"]),
                "missing": tuple(json.loads(told["missing"])),
                "requested_at": time(told["requested_at"]),
                "decided_at": optional_time(told["decided_at"]),
                "started_at": optional_time(told["started_at"]),
                "ended_at": optional_time(told["ended_at"]),
            }
        )
    )
