"""What came of the checks."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.StrEnum):
    """What a check found."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check found.

    Attributes:
        name: The check's name.
        asks: What must hold.
        source: Where the contract says so.
        verdict: Whether it does.
        seconds: How long the check took.
        remark: What else is worth knowing; for a skipped check the reason.
        expected: For a failed check: what the rule asks for, here.
        got: For a failed check: what came instead.
        advice: For a failed check: what to do about it.
    """

    name: str
    asks: str
    source: str
    verdict: Verdict
    seconds: float
    remark: str = ""
    expected: str = ""
    got: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What all checks found.

    Attributes:
        target: The address or folder that was checked.
        runner_id: The runner that was checked; empty where none could be made out.
        others: Further runners of the process, which were not checked.
        sdk: What the process says it is made with; may be empty.
        outcomes: In the order of the checks.
        seconds: How long it took.
        output: The end of what the process wrote, where the kit started it and a check failed.
    """

    target: str
    runner_id: str
    sdk: str
    outcomes: tuple[Outcome, ...]
    seconds: float
    output: str = ""
    others: tuple[str, ...] = ()

    def count(self, verdict: Verdict) -> int:
        """How many checks ended so."""
        return sum(outcome.verdict == verdict for outcome in self.outcomes)

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(each.name for each in self.outcomes if each.verdict is Verdict.FAILED)

    @property
    def passed(self) -> bool:
        """Whether something was checked, and nothing failed."""
        return not self.failed and self.count(Verdict.OK) > 0
