"""Actions that are done by whoever answers at an address of the operator's choice.

The request is a POST with a JSON object; target and payload stand in it as the runner wrote them::

    {
        "action_id": ...,
        "action": ...,
        "idempotency_key": ...,
        "target": ...,
        "payload": ...,
        "run_id": ...,
        "agent_id": ...,
        "runner_id": ...,
        "workspace_id": ...,
        "requested_at": ...,
        "approved_by": ...,
    }

It is signed as the Standard Webhooks convention has it (https://www.standardwebhooks.com): HMAC-
SHA256 over id, time and body, in `webhook-id`, `webhook-timestamp` and `webhook-signature`. The id
is the action's. An answer of 2xx means that it was done; a body that is JSON is its result. Any
other answer, and none, is a failure; nothing is tried again, and no redirect is followed: the only
address that is ever called is the configured one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import urlsplit

from host_service import __version__
from host_service.actions.executors import ExecutionFailed, ExecutorAnswer
from host_service.actions.http_post import PostFailed, Reply, post
from host_service.validation.json_text import find_json_fault
from stores.actions import ActionRecord

_SECRET_PREFIX = "whsec_"  # noqa: S105 - how the convention marks a secret that is base64
_UNKNOWN = "whether it was done is not known, and it is not tried again"


class Webhook:
    """Executes actions by a POST.

    Args:
        url: Where; `http` or `https`.
        secret: What requests are signed with: text, or `whsec_` and base64.
        timeout_seconds: How long all of it may take.
        most_bytes: How much of an answer is kept.
        clock: Tells the time.
    """

    def __init__(
        self,
        *,
        url: str,
        secret: str,
        timeout_seconds: float,
        most_bytes: int,
        clock: Callable[[], datetime],
    ) -> None:
        self._url = urlsplit(url)
        self._key = _key(secret)
        self._timeout_seconds = timeout_seconds
        self._most_bytes = most_bytes
        self._clock = clock

    async def execute(self, action: ActionRecord) -> ExecutorAnswer:
        """Send it; see `ActionExecutor`."""
        body = _body(action).encode()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                reply = await post(
                    self._url,
                    headers=self._headers(action.action_id, body),
                    body=body,
                    most_bytes=self._most_bytes,
                )
        except TimeoutError as error:
            raise ExecutionFailed(
                f"the webhook did not answer within {self._timeout_seconds:g} s: {_UNKNOWN}"
            ) from error
        except PostFailed as failure:
            effect = _UNKNOWN if failure.was_sent else "it was not done"
            raise ExecutionFailed(f"the webhook did not answer, {failure}: {effect}") from failure
        return self._answer(reply)

    def _headers(self, action_id: str, body: bytes) -> dict[str, str]:
        timestamp = str(int(self._clock().timestamp()))
        signed = b".".join([action_id.encode(), timestamp.encode(), body])
        digest = hmac.new(self._key, signed, hashlib.sha256).digest()
        return {
            "content-type": "application/json",
            "user-agent": f"runmesh/{__version__}",
            "webhook-id": action_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
        }

    def _answer(self, reply: Reply) -> ExecutorAnswer:
        if 300 <= reply.status < 400:
            raise ExecutionFailed(
                f"the webhook answered with status {reply.status}: redirects are not followed"
            )
        if not 200 <= reply.status < 300:
            raise ExecutionFailed(f"the webhook answered with status {reply.status}")
        if not reply.body:
            return ExecutorAnswer()
        if not reply.is_whole:
            return ExecutorAnswer(
                detail=f"its answer has more than {self._most_bytes} bytes and was not kept"
            )
        try:
            text = reply.body.decode()
        except UnicodeDecodeError:
            return ExecutorAnswer(detail="its answer is no UTF-8 and was not kept")
        if find_json_fault(text) is not None:
            return ExecutorAnswer(detail="its answer is no JSON and was not kept")
        return ExecutorAnswer(text)


def _key(secret: str) -> bytes:
    if not secret.startswith(_SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except ValueError as error:
        raise ValueError(f"what follows {_SECRET_PREFIX} must be base64") from error


def _body(action: ActionRecord) -> str:
    told = {
        "action_id": action.action_id,
        "action": action.name,
        "idempotency_key": action.idempotency_key,
        "run_id": action.run_id,
        "agent_id": action.agent_id,
        "runner_id": action.runner_id,
        "workspace_id": action.workspace,
        "requested_at": action.requested_at.astimezone(UTC).isoformat(),
        "approved_by": action.decided_by,
    }
    members = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in told.items()]
    # JSON as it came: through Python its numbers could change.
    members += [f'"target":{action.target or "null"}', f'"payload":{action.payload or "null"}']
    return f"{{{','.join(members)}}}"
