"""The message in progress: what was said so far, and the results that say it."""

from collections.abc import Mapping

from runner_sdk import Result, RunContext

# A result has 1 MiB at most; a character has up to four bytes.
_LONGEST_PIECE = 200_000
_MESSAGE_BYTES = 1_000_000
"""Larger messages are left to the host, which completes them from the pieces."""


class Answer:
    """One message, in as many pieces and paragraphs as it comes.

    Its text is that of all pieces joined. Blanks alone are not said: a message of nothing but
    blanks is none.
    """

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._said: list[str] = []
        self._reasoning: list[str] = []
        self._held = ""
        self._begins_paragraph = False

    @property
    def text(self) -> str:
        """What was said."""
        return "".join(self._said)

    def say(self, text: str) -> list[Result]:
        """Appends text, and returns the results that say it."""
        text = self._held + text
        if self._begins_paragraph or not self._said:
            if text.isspace():
                self._held = text
                return []
            if self._begins_paragraph and self._said:
                text = _break_after(self._said[-1]) + text.lstrip()
        self._held, self._begins_paragraph = "", False
        return [self._delta(piece) for piece in _cut(text)]

    def think(self, text: str) -> list[Result]:
        """Appends reasoning, which is shown apart."""
        self._reasoning.append(text)
        return [self._ctx.reasoning(piece) for piece in _cut(text)]

    def end_paragraph(self) -> None:
        """Lets what is said next begin on lines of its own."""
        self._held, self._begins_paragraph = "", True

    def completed(self, metadata: Mapping[str, str]) -> list[Result]:
        """Returns the whole message; nothing where nothing was said.

        Args:
            metadata: Where it comes from.
        """
        text, reasoning = self.text, "".join(self._reasoning)
        size = len(text.encode())
        if not text or size > _MESSAGE_BYTES:
            return []
        if size + len(reasoning.encode()) > _MESSAGE_BYTES:
            reasoning = ""
        return [self._ctx.message(text, reasoning=reasoning or None, metadata=metadata)]

    def _delta(self, piece: str) -> Result:
        self._said.append(piece)
        return self._ctx.delta(piece)


def _break_after(text: str) -> str:
    if text.endswith("\n\n"):
        return ""
    return "\n" if text.endswith("\n") else "\n\n"


def _cut(text: str) -> list[str]:
    return [text[at : at + _LONGEST_PIECE] for at in range(0, len(text), _LONGEST_PIECE)]
