"""Actions to work on."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from stores.actions import ActionRecord, ActionStatus

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def an_action(**changes: Any) -> ActionRecord:
    """Return an action that executes."""
    action = ActionRecord(
        action_id="action-1",
        scope_key="scope",
        idempotency_key='key "é🦉"',
        digest=b"digest",
        run_id="run-1",
        workspace="acme",
        agent_id="helper",
        runner_id="plugin:acme/desk/default",
        name="ticket.create",
        requested_at=NOON,
        host_id="host",
        host_incarnation="start-1",
        target='{"room": 9223372036854775809}',
        payload='{"text": "hé 🦉", "amount": 1.10}',
        status=ActionStatus.EXECUTING,
    )
    return replace(action, **changes)
