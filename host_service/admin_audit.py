"""What operators change, written down: who, what, with what outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from host_service.errors import HostError
from host_service.interceptors import current_caller
from stores.audit import Audit, AuditOutcome, AuditRecord

# A failure is the host's; everything else that a call can end with is a refusal.
_FAILURES = frozenset({"UNAVAILABLE", "RUNTIME_ERROR"})


class AdminAudit:
    """Writes one row for each object that an operator's call changes, or one for the call.

    Args:
        audit: Where rows are kept.
        clock: Tells the time.
    """

    def __init__(self, *, audit: Audit, clock: Callable[[], datetime]) -> None:
        self._audit = audit
        self._clock = clock

    @contextmanager
    def watched(self, rpc: str, resource: str = "") -> Iterator[list[str]]:
        """Write down how a change ends.

        Yields:
            A list for the objects that were changed, such as `model small`; the one that is given
            where none is added.
        """
        began, at = time.monotonic(), self._clock()
        changed: list[str] = []
        outcome, reason = AuditOutcome.FAILED, "RUNTIME_ERROR"
        try:
            yield changed
            outcome, reason = AuditOutcome.DONE, ""
        except HostError as error:
            reason = error.reason
            outcome = AuditOutcome.FAILED if reason in _FAILURES else AuditOutcome.REFUSED
            raise
        finally:
            for each in changed or [resource]:
                self._audit.append(
                    AuditRecord(
                        at=at,
                        rpc=rpc,
                        outcome=outcome,
                        caller=current_caller().key_id,
                        resource=each,
                        reason=reason,
                        duration_seconds=time.monotonic() - began,
                    )
                )
