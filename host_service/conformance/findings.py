"""How a check says that a rule is not kept, or that it does not apply."""


class Failed(Exception):
    """The runner does not keep the rule.

    Attributes:
        expected: What the rule asks for, here.
        got: What came instead.
        advice: What the runner's author can do about it.
    """

    def __init__(self, *, expected: str, got: str, advice: str) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.expected = expected
        self.got = got
        self.advice = advice


class Skipped(Exception):
    """The check says nothing about this runner; the text is the reason."""
