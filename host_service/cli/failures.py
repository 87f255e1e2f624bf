"""What a command says when it fails: one line with what to do next, and an exit status."""

import re
import sys

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141

_LINE_BREAKS = re.compile(r"\s*[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+\s*")
# C0 (but tab and line feed), DEL and C1: on a terminal they move the cursor, colour or rename it.
_CONTROLS = {
    **{code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)},
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
}


class CommandError(Exception):
    """A command cannot do what it was asked to.

    Args:
        message: What is wrong, naming the thing it is about.
        advice: What to do next. Empty when the message says it already.
        exit_status: The status that the process ends with.
    """

    def __init__(self, message: str, advice: str = "", *, exit_status: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.exit_status = exit_status

    def __str__(self) -> str:
        return f"{self.message}: {self.advice}" if self.advice else self.message


def visible(text: str) -> str:
    """Makes control characters visible, so that text from elsewhere cannot drive a terminal."""
    return text.replace("\r\n", "\n").translate(_CONTROLS)


def one_line(text: str) -> str:
    """Joins the lines of a text, and makes control characters visible."""
    return visible(_LINE_BREAKS.sub(" ", text.strip()))


def tell(failure: str) -> None:
    """Prints a failure as one line on standard error, after what was printed before it."""
    sys.stdout.flush()
    print(f"runmesh: {one_line(failure)}", file=sys.stderr, flush=True)
