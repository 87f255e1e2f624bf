"""The conformance kit: plays the host against any runner, in any language, and says what is wrong.

::

    kit --> session --> the runner       one connection, many runs, each recorded
             |  ^
             |  +---- the runner's calls to the kit's two hosts, each noted with its tokens
             v
    checks --> outcomes --> report

A check looks at one rule. Those of results and tokens come last, and look at every run that the
others made; so a runner that breaks one rule fails one check, whichever input shows it.
"""

from host_service.conformance.checks import CHECKS
from host_service.conformance.junit import to_junit
from host_service.conformance.kit import (
    check_address,
    check_attached,
    check_attached_plugin,
    check_plugin,
)
from host_service.conformance.options import HostListening, Options, Patience
from host_service.conformance.report import Outcome, Report, Verdict
from host_service.conformance.session import Unreachable

__all__ = [
    "CHECKS",
    "HostListening",
    "Options",
    "Outcome",
    "Patience",
    "Report",
    "Unreachable",
    "Verdict",
    "check_address",
    "check_attached",
    "check_attached_plugin",
    "check_plugin",
    "to_junit",
]
