"""All checks, in the order in which they are made."""

from typing import Final

from host_service.conformance.check import Check
from host_service.conformance.checks import (
    attachment,
    deadlines,
    handshake,
    health,
    hosts,
    inputs,
    interrupts,
    limits,
    manifests,
    process,
    results,
)

#: Rules of results and of tokens are looked at last: in every run that the others made.
CHECKS: Final[tuple[Check, ...]] = (
    process.START,
    *handshake.CHECKS,
    *manifests.CHECKS,
    *health.CHECKS,
    *inputs.CHECKS,
    *hosts.CHECKS,
    *limits.CHECKS,
    *interrupts.CHECKS,
    *deadlines.CHECKS,
    *results.CHECKS,
    *hosts.TOKEN_CHECKS,
    *attachment.CHECKS,
    *process.CHECKS,
)
