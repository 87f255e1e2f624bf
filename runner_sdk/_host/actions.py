"""Actions on the platform, asked for and answered."""

from dataclasses import dataclass
from typing import Any, Literal

from runmesh.v1 import host_api_pb2 as api

from runner_sdk._host.calls import HostCalls
from runner_sdk._json import from_json
from runner_sdk.results import ResultConstructors


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """What became of an action.

    Attributes:
        proto: The whole answer.
    """

    proto: api.RequestActionResponse

    @property
    def status(self) -> str:
        """What became of it.

        `executed`, `awaiting_approval`, `recorded` (it was not executed: `missing` says what it
        lacks), `rejected`, `failed`, or `unknown` for what a later version of the host says.
        """
        known = {entry.number: entry.name for entry in api.ActionStatus.DESCRIPTOR.values}
        name = known.get(self.proto.status, "ACTION_STATUS_UNSPECIFIED")
        word = name.removeprefix("ACTION_STATUS_").lower()
        return "unknown" if word == "unspecified" else word

    @property
    def executed(self) -> bool:
        """Whether it was executed."""
        return self.proto.status == api.ACTION_STATUS_EXECUTED

    @property
    def missing(self) -> list[str]:
        """What an execution lacks, such as `executor` or `policy`."""
        return list(self.proto.missing)

    @property
    def result(self) -> Any:
        """What the executor answered, a JSON value; None where it answered nothing."""
        return from_json(self.proto.result_json) if self.proto.HasField("result_json") else None

    @property
    def detail(self) -> str:
        """More about it, for people."""
        return self.proto.detail


@dataclass(frozen=True, slots=True)
class Actions:
    """Actions on the platform: `ctx.host.actions`.

    Needs the capability `platform_api` and the action's name in the manifest's permission
    `platform_actions`.
    """

    calls: HostCalls

    async def request(
        self,
        action: str,
        target: object = None,
        payload: object = None,
        *,
        idempotency_key: str,
        approval_hint: Literal["", "not_needed", "advised"] = "",
        timeout_seconds: float | None = None,
    ) -> ActionOutcome:
        """Asks for an action and returns what became of it; policy decides on its execution.

        Args:
            action: The action's name, such as `message.send`.
            target: What to act on, a JSON value.
            payload: What to do it with, a JSON value.
            idempotency_key: The same key never executes twice: asking again answers the same.
            approval_hint: Whether a person should look first, as the runner sees it.
            timeout_seconds: How long it may take, where that is less than the run may.

        Raises:
            Unauthorized: The run may not ask for this action.
            AlreadyExists: The key was used before with other content.
        """
        result = ResultConstructors.request_action(
            action,
            target,
            payload,
            idempotency_key=idempotency_key,
            approval_hint=approval_hint,
        )
        request = api.RequestActionRequest(action=result.action_requested)
        response: api.RequestActionResponse = await self.calls.call(
            "RequestAction", request, timeout_seconds=timeout_seconds
        )
        return ActionOutcome(response)
