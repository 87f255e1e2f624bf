"""What the host may refuse or fail with, and why.

The tree::

    HostError                    a reason of the contract, a text for people, facts by name
    +-- Unauthenticated          no credential, or one that does not hold
    +-- Unauthorized             the role, permission or scope is not granted
    +-- NotFound                 there is no such thing within the caller's reach
    +-- InvalidArgument          fields that break rules; carries each of them
    +-- PayloadTooLarge          larger than a limit; names size and limit
    +-- RateLimited              too many calls; says when to try again
    +-- Overloaded               a line or a buffer is full; says when to try again
    +-- NoBinding                no binding matches an event
    +-- BindingConflict          bindings tie
    +-- SessionBusy              the session is busy and the policy is to refuse
    +-- Conflict                 a stale version
    +-- AlreadyExists            the same key with other content
    +-- SequenceCompacted        what was asked for is past retention
    +-- DeadlineExceeded         the run's deadline has passed
    +-- NotImplementedHere       the contract has the call, this host does not
    +-- Unavailable              the host, or something behind it, is away for now
    +-- Incompatible             no protocol version in common
    StartupError                 the host cannot start; says what to do

How a reason becomes a gRPC status stands beside the interceptor that does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class FieldFault:
    """A field that breaks a rule.

    Attributes:
        field: Its path, such as `event.actor.id`.
        rule: The rule, in the contract's words.
        got: The shape of what was sent; never its content where that may be private.
    """

    field: str
    rule: str
    got: str

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}; got {self.got}"


class HostError(Exception):
    """Whatever the host refuses or fails with, as callers and runners may hear it.

    Attributes:
        reason: The name of an `ErrorReason` without its prefix.
        message: One sentence for people: no secret, no path, no stack trace.
        facts: What helps a program, by name.
        retry_after_seconds: When trying again may help, or None.
        faults: Fields that break rules.
    """

    reason: ClassVar[str] = "RUNTIME_ERROR"

    def __init__(
        self,
        message: str,
        *,
        facts: Mapping[str, str] | None = None,
        retry_after_seconds: float | None = None,
        faults: Sequence[FieldFault] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.facts = dict(facts or {})
        self.retry_after_seconds = retry_after_seconds
        self.faults = tuple(faults)


class Unauthenticated(HostError):
    """No credential, or one that does not hold."""

    reason = "UNAUTHENTICATED"


class Unauthorized(HostError):
    """The role, permission, capability or scope is not granted."""

    reason = "UNAUTHORIZED"


class NotFound(HostError):
    """There is no such thing within the caller's reach."""

    reason = "NOT_FOUND"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {name!r}", facts={"resource": name})


class InvalidArgument(HostError):
    """Fields of a request break rules."""

    reason = "INVALID_ARGUMENT"

    def __init__(self, faults: Sequence[FieldFault]) -> None:
        super().__init__("; ".join(str(fault) for fault in faults), faults=faults)


class PayloadTooLarge(HostError):
    """Something is larger than a limit."""

    reason = "PAYLOAD_TOO_LARGE"

    def __init__(self, what: str, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{what} has {size_bytes} bytes; the limit is {limit_bytes}",
            facts={"size": str(size_bytes), "limit": str(limit_bytes)},
        )


class RateLimited(HostError):
    """Too many calls."""

    reason = "RATE_LIMITED"


class Overloaded(HostError):
    """A waiting line or a reader's buffer is full."""

    reason = "OVERLOADED"


class NoBinding(HostError):
    """No binding matches an event."""

    reason = "NO_BINDING"


class BindingConflict(HostError):
    """Bindings match an event equally well."""

    reason = "BINDING_CONFLICT"

    def __init__(self, binding_ids: Sequence[str]) -> None:
        names = ", ".join(sorted(binding_ids))
        super().__init__(
            f"bindings {names} match alike: narrow the scope, event types or filters of one",
            facts={"bindings": names},
        )


class SessionBusy(HostError):
    """The session is busy and the agent's policy is to refuse."""

    reason = "SESSION_BUSY"


class Conflict(HostError):
    """What was read has changed since."""

    reason = "CONFLICT"


class AlreadyExists(HostError):
    """The same key or event was used before with other content."""

    reason = "ALREADY_EXISTS"


class SequenceCompacted(HostError):
    """What was asked for is past retention."""

    reason = "SEQUENCE_COMPACTED"


class DeadlineExceeded(HostError):
    """The run's deadline has passed."""

    reason = "DEADLINE_EXCEEDED"


class NotImplementedHere(HostError):
    """The contract has the call, this host does not."""

    reason = "NOT_IMPLEMENTED"

    def __init__(self, rpc: str) -> None:
        super().__init__(f"{rpc} is not offered by this host", facts={"rpc": rpc})


class Unavailable(HostError):
    """The host, or something behind it, is away for now."""

    reason = "UNAVAILABLE"


class Incompatible(HostError):
    """The other side speaks no protocol version of this host."""

    reason = "INCOMPATIBLE"


class StartupError(Exception):
    """The host cannot start.

    Attributes:
        message: What is in the way.
        advice: What to do about it.
    """

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(f"{message}: {advice}")
        self.message = message
        self.advice = advice
