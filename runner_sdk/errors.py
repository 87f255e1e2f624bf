"""What the SDK raises, and what a runner may raise to end its run.

The tree::

    SdkError
    +-- ManifestError          a manifest that cannot be used; names file, field and rule
    +-- ServeError             an address, a certificate or a set of runners that cannot be served
    +-- RunFailure             raised by a runner: the run ends with this code and message
    +-- HostCallError          a call to the host failed; `reason` says why
        +-- Unauthenticated    a wrong token, or the run has ended
        +-- Unauthorized       not among the run's rights
        +-- NotFound           among the run's rights, but there is no such thing
        +-- InvalidArgument    a field breaks a rule; `violations` names both
        +-- PayloadTooLarge    over a limit; `metadata` has `size` and `limit`
        +-- RateLimited        too many calls; `retry_after_seconds` says when to try again
        +-- Overloaded         the host is full; `retry_after_seconds` says when to try again
        +-- Conflict           a stale version: read again, then write
        +-- AlreadyExists      the same key was used before with other content
        +-- PastRetention      too old: the host does not have it any more
        +-- DeadlineExceeded   the run's deadline, or the call's own, has passed
        +-- NotImplementedByHost   this host does not offer the call
        +-- HostUnavailable    the host, or something behind it, is away for now
        +-- RuntimeFailure     something failed in the host that should not

The subclasses of HostCallError mirror the contract's `ErrorReason`, so far as calls to the host
can give them; its other reasons are for callers of the gateway. A reason that is not known here
arrives as a plain HostCallError.
"""

from collections.abc import Mapping
from dataclasses import dataclass


class SdkError(Exception):
    """Whatever the SDK raises."""


class ManifestError(SdkError):
    """A manifest that cannot be used.

    Attributes:
        file: The manifest's file, as it was named or found.
        field: The field in it, such as `config_schema[2].name`; empty for the file as a whole.
        rule: What must hold, and what was there.
    """

    def __init__(self, *, file: str, field: str, rule: str) -> None:
        super().__init__(f"{file}: {field}: {rule}" if field else f"{file}: {rule}")
        self.file = file
        self.field = field
        self.rule = rule


class ServeError(SdkError):
    """An address, a certificate or a set of runners that cannot be served."""


class RunFailure(SdkError):
    """Raise it in a runner to end the run as failed, with a code of your own.

    Args:
        code: `runner.error`, `runner.unavailable`, ... or a word under the runner's own prefix,
            such as `helpdesk.no_such_ticket`. 1 to 100 bytes.
        message: What happened, for people. No stack trace, path or secret.
        retryable: Whether the same event might succeed later.
        details: Facts that help, by name.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        details: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = {str(name): str(fact) for name, fact in (details or {}).items()}


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A field of a call that breaks a rule."""

    field: str
    rule: str


class HostCallError(SdkError):
    """A call to the host failed.

    Attributes:
        method: The call, such as `GetState`.
        reason: The contract's reason, such as `NOT_FOUND`. Decide by it, never by the message.
        message: What the host says about it, for people.
        metadata: Facts that help: `run_id`, `resource`, `size`, `limit`, ... Of a failure of a
            model's provider: `model_id`, `model_error`, `provider_status`, `provider_message`.
        violations: The fields that break rules, where that is the reason.
        retry_after_seconds: When it is worth trying again; None where the host did not say.
        retryable: Whether the same call may succeed later in this run.
    """

    retryable: bool = False

    def __init__(
        self,
        *,
        method: str,
        reason: str,
        message: str,
        metadata: Mapping[str, str] | None = None,
        violations: tuple[FieldViolation, ...] = (),
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(f"{method}: {reason}: {message}")
        self.method = method
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.violations = violations
        self.retry_after_seconds = retry_after_seconds


class Unauthenticated(HostCallError):
    """A wrong token, or the run has ended."""


class Unauthorized(HostCallError):
    """Not among the run's rights, whatever the id."""


class NotFound(HostCallError):
    """Among the run's rights, but there is no such thing."""


class InvalidArgument(HostCallError):
    """A field breaks a rule; `violations` names both."""


class PayloadTooLarge(HostCallError):
    """Over a limit; `metadata` has `size` and `limit`. Repeating does not help."""


class RateLimited(HostCallError):
    """Too many calls; `retry_after_seconds` says when to try again."""

    retryable = True


class Overloaded(HostCallError):
    """The host is full; `retry_after_seconds` says when to try again."""

    retryable = True


class Conflict(HostCallError):
    """A stale version: read again, then write."""


class AlreadyExists(HostCallError):
    """The same key was used before with other content."""


class PastRetention(HostCallError):
    """Too old: what was asked for is past the host's retention; `metadata` has the oldest there is.

    Its reason is `SEQUENCE_COMPACTED`.
    """


class DeadlineExceeded(HostCallError):
    """The run's deadline has passed, or the `timeout_seconds` of the call."""


class NotImplementedByHost(HostCallError):
    """This host does not offer the call."""


class HostUnavailable(HostCallError):
    """The host, or something behind it, is away for now. Repeating may help."""

    retryable = True


class RuntimeFailure(HostCallError):
    """Something failed in the host that should not; its log has it under the trace id."""
