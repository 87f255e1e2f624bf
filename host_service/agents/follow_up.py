"""What happens to an event whose session is busy: has runs that have not ended.

An agent's policy is for messages (`message.received`): a recall or a schedule that comes while a
run is under way neither interrupts it nor is refused for it, and is not said to it. What a request
asks for holds for its event, whatever that is. An event without a conversation has no session that
it could find busy: two calls of an API have nothing to do with each other.

Runs of one session on a stateful runner go in order, whatever else is asked for. A runner that is
not known (its plugin has yet to start) may be stateful, and is treated so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from host_service.errors import FieldFault, InvalidArgument


class FollowUp(StrEnum):
    """What happens to an event whose session is busy."""

    QUEUE = "queue"
    PARALLEL = "parallel"
    STEER = "steer"
    INTERRUPT = "interrupt"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class RunnerKind:
    """What a runner can do about a busy session.

    Attributes:
        is_stateful: Runs of a session go one at a time, to the same instance.
        can_be_steered: It takes further input in the middle of a run.
    """

    is_stateful: bool
    can_be_steered: bool


#: What a runner that is not known is taken for.
UNKNOWN_RUNNER = RunnerKind(is_stateful=True, can_be_steered=False)


def find_fault(follow_up: str, kind: RunnerKind) -> str | None:
    """Return the rule that a follow-up breaks with a runner, or None."""
    if follow_up == FollowUp.STEER and not kind.can_be_steered:
        return "steer only for a runner with the capability `steering`"
    if follow_up == FollowUp.PARALLEL and kind.is_stateful:
        return "not parallel for a runner with the capability `stateful_session`"
    return None


def choose(
    *, policy: str, override: str, kind: RunnerKind | None, is_message: bool, has_session: bool
) -> FollowUp:
    """Return what is to happen to an event.

    Args:
        policy: The agent's; empty: by its runner's kind.
        override: The request's; empty: as the agent has it.
        kind: What the agent's runner can do; None if that is not known.
        is_message: Whether the event is a message.
        has_session: Whether the event belongs to a conversation.

    Raises:
        InvalidArgument: The request asks for what the runner cannot do.
    """
    fault = find_fault(override, kind) if kind is not None else None
    if fault is not None:
        raise InvalidArgument([FieldFault("follow_up", fault, override)])
    kind = kind or UNKNOWN_RUNNER
    by_kind = FollowUp.QUEUE if kind.is_stateful else FollowUp.PARALLEL
    asked = override or (policy if is_message else "")
    # The runner may have changed since its agent was saved.
    if not asked or not has_session or find_fault(asked, kind) is not None:
        return by_kind
    return FollowUp(asked)
