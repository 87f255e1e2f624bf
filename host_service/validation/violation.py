"""What is told of a field that breaks a rule."""

from dataclasses import dataclass, replace
from typing import Any, Final

from host_service.validation.rule_kinds import MaxSize, Rule

MOST_VIOLATIONS: Final = 20
"""Nobody mends more at once, and a hostile request must not make the host write a book."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A field that breaks a rule.

    Attributes:
        field: Its path in the message, such as `event.actor.id` or
            `event.input.parts[2].inline.data`.
        rule: The rule in the contract's words.
        got: The shape of what was there, and never its content where that may be long or private.
        size: For a limit in bytes, which is PAYLOAD_TOO_LARGE rather than INVALID_ARGUMENT: the
            size.
        limit: For a limit in bytes: the limit.
        is_unknown: Whether it may keep the rules of a later version of the contract: an enum's
            number that this one does not have.
    """

    field: str
    rule: str
    got: str
    size: int | None = None
    limit: int | None = None
    is_unknown: bool = False

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}; got {self.got}"

    def below(self, path: str) -> "Violation":
        """Returns the same violation, told from where its message stands."""
        if not path:
            return self
        return replace(self, field=f"{path}.{self.field}" if self.field else path)


def find_violation(field: str, rules: tuple[Rule, ...], value: Any) -> Violation | None:
    """Tries rules in order and tells the first that a value breaks."""
    for rule in rules:
        if got := rule.fault(value):
            return violation_of(field, rule, value, got)
    return None


def violation_of(field: str, rule: Rule, value: Any, got: str) -> Violation:
    """Tells a broken rule, with size and limit where it has them."""
    if isinstance(rule, MaxSize):
        return Violation(field, rule.words, got, rule.measure(value), rule.limit)
    return Violation(field, rule.words, got)
