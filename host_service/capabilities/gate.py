"""The one gate that every HostAPI call passes.

The tokens are checked before a call comes here. Then, in this order: the rate, the permission, the
fields, the scope, the size, the deadline; what a call names by id is looked up by its capability,
within what the run was given. Whatever becomes of a call, one audit row says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from google.protobuf.message import Message

from host_service.authorization.tokens import RunAccess
from host_service.capabilities.needs import NEEDS, Need
from host_service.errors import (
    FieldFault,
    HostError,
    InvalidArgument,
    PayloadTooLarge,
    RateLimited,
    Unauthorized,
)
from host_service.store_failures import STORE_FAILURES, meaning_of
from host_service.validation import Validator
from host_service.validation.violation import Violation
from stores.audit import Audit, AuditOutcome, AuditRecord

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response")

# A failure is the host's; everything else that a call can end with is a refusal.
_FAILURES = frozenset({"UNAVAILABLE", "RUNTIME_ERROR"})
_TOOL_FAILED = "TOOL_FAILED"


@dataclass(slots=True)
class _Seen:
    """What is known of a call that is being served.

    Attributes:
        failure: Why what it called has failed, although it is answered; empty: it has not.
    """

    failure: str = ""


class Gate:
    """Checks calls of runs, and writes down what becomes of them.

    Args:
        audit: Where that is written.
        validator: The contract's rules under the host's limits.
        clock: Tells the time.
    """

    def __init__(
        self, *, audit: Audit, validator: Validator, clock: Callable[[], datetime]
    ) -> None:
        self._audit = audit
        self._validator = validator
        self._clock = clock

    async def answer(
        self,
        rpc: str,
        access: RunAccess,
        request: Request,
        work: Callable[[RunAccess, Request], Awaitable[Response]],
    ) -> Response:
        """Check a call, and return what a capability answers.

        Raises:
            HostError: It is refused, or failed.
        """
        with self._watched(rpc, access, request) as seen:
            self._check(NEEDS[rpc], access, request)
            await access.until_accepted()
            response = await work(access, request)
            if getattr(response, "is_error", False):
                # The call was answered, and what was called has failed.
                seen.failure = _TOOL_FAILED
            return response

    async def stream(
        self,
        rpc: str,
        access: RunAccess,
        request: Request,
        work: Callable[[RunAccess, Request], AsyncGenerator[Response, None]],
        write: Callable[[Response], Awaitable[None]],
    ) -> None:
        """Check a call, and write what a capability yields. Its audit row comes at the end.

        Raises:
            HostError: It is refused, or failed.
        """
        with self._watched(rpc, access, request):
            self._check(NEEDS[rpc], access, request)
            await access.until_accepted()
            # A runner that leaves ends the capability's code right here, and not when the
            # generator happens to be collected.
            async with aclosing(work(access, request)) as responses:
                async for response in responses:
                    await write(response)

    async def take_in(
        self,
        rpc: str,
        access: RunAccess,
        requests: AsyncIterator[Request],
        work: Callable[[RunAccess, AsyncIterator[Request]], Awaitable[Response]],
        *,
        is_plain: Callable[[Request], bool] = lambda _request: False,
    ) -> Response:
        """Check a call whose requests are a stream, and return what a capability answers.

        Args:
            rpc: The call.
            access: Of the run that makes it.
            requests: What it sends.
            work: The capability's method.
            is_plain: Tells requests that break no rule, without all the rules: to look through a
                MiB of bytes for texts takes longer than to store it.

        Raises:
            HostError: It is refused, or failed.
        """
        with self._watched(rpc, access, None):
            self._check(NEEDS[rpc], access, None)
            await access.until_accepted()
            return await work(access, self._checked(requests, is_plain))

    async def _checked(
        self, requests: AsyncIterator[Request], is_plain: Callable[[Request], bool]
    ) -> AsyncIterator[Request]:
        async for request in requests:
            if not is_plain(request):
                violations = self._validator.find_violations(request)
                _require_fields(violations)
                _require_sizes(violations)
            yield request

    def refuse(self, rpc: str, error: HostError) -> None:
        """Write down a call that was refused before it came here, since its tokens do not hold."""
        self._audit.append(
            AuditRecord(
                at=self._clock(), rpc=rpc, outcome=AuditOutcome.REFUSED, reason=error.reason
            )
        )

    def _check(self, need: Need, access: RunAccess, request: Message | None) -> None:
        wait_seconds = access.rate.take()
        if wait_seconds:
            raise _too_fast(access, wait_seconds)
        _require_granted(need.missing(access.snapshot, request), access)
        violations = self._validator.find_violations(request) if request is not None else []
        _require_fields(violations)
        _require_granted(need.missing_scope(access.snapshot, request), access)
        if not need.sizes_after_resource:
            _require_sizes(violations)
        if access.ended is not None:
            raise access.ended

    @contextmanager
    def _watched(self, rpc: str, access: RunAccess, request: Message | None) -> Iterator[_Seen]:
        """Let a call end with its run, and write down how it ended."""
        seen = _Seen()
        began, at = time.monotonic(), self._clock()
        task: asyncio.Task[Any] | None = asyncio.current_task()
        outcome, reason = AuditOutcome.FAILED, "RUNTIME_ERROR"
        if task is not None:
            access.calls.add(task)
        try:
            yield seen
            outcome = AuditOutcome.FAILED if seen.failure else AuditOutcome.DONE
            reason = seen.failure
        except HostError as error:
            outcome, reason = _outcome(error), error.reason
            raise
        except STORE_FAILURES as error:
            told = meaning_of(error)
            outcome, reason = _outcome(told), told.reason
            raise
        except asyncio.CancelledError:
            if access.ended is None:
                # The runner gave the call up; what it had by then, it has.
                reason = "CANCELLED"
                raise
            outcome, reason = _outcome(access.ended), access.ended.reason
            if task is not None:
                task.uncancel()
            raise access.ended from None
        finally:
            if task is not None:
                access.calls.discard(task)
            self._audit.append(
                AuditRecord(
                    at=at,
                    rpc=rpc,
                    outcome=outcome,
                    run_id=access.snapshot.run_id,
                    runner_id=access.snapshot.runner_id,
                    resource=NEEDS[rpc].resource_of(request),
                    scope=NEEDS[rpc].scope_of(request),
                    reason=reason,
                    duration_seconds=time.monotonic() - began,
                )
            )


def _outcome(error: HostError) -> AuditOutcome:
    return AuditOutcome.FAILED if error.reason in _FAILURES else AuditOutcome.REFUSED


def _too_fast(access: RunAccess, wait_seconds: float) -> RateLimited:
    per_second, burst = f"{access.rate.per_second:g}", f"{access.rate.burst:g}"
    return RateLimited(
        f"the run makes more calls than it may, which are {per_second} a second and {burst} at "
        "once after a rest: wait, then call again",
        facts={
            "run_id": access.snapshot.run_id,
            "host_calls_per_second": per_second,
            "host_calls_burst": burst,
        },
        retry_after_seconds=wait_seconds,
    )


def _require_granted(missing: str | None, access: RunAccess) -> None:
    if missing is not None:
        raise Unauthorized(
            f"this run was not granted {missing}", facts={"run_id": access.snapshot.run_id}
        )


def _require_fields(violations: Sequence[Violation]) -> None:
    faults = [
        FieldFault(each.field, each.rule, each.got) for each in violations if each.size is None
    ]
    if faults:
        raise InvalidArgument(faults)


def _require_sizes(violations: Sequence[Violation]) -> None:
    for each in violations:
        if each.size is not None and each.limit is not None:
            raise PayloadTooLarge(each.field, size_bytes=each.size, limit_bytes=each.limit)
