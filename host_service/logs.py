"""The host's log: one line an entry on standard error, with the trace where there is one."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

from opentelemetry.trace import format_trace_id, get_current_span

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class LineFormatter(logging.Formatter):
    """Makes one line of an entry, whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, logger, message and trace; a traceback follows on the same line."""
        at = (
            datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
        line = f"{at} {record.levelname.lower():7} {record.name} {one_line(record.getMessage())}"
        context = get_current_span().get_span_context()
        if context.is_valid:
            line += f" trace={format_trace_id(context.trace_id)}"
        if record.exc_info:
            line += f" traceback={one_line(self.formatException(record.exc_info))!r}"
        return line


def one_line(text: str) -> str:
    """Return a text with line breaks and other control characters written out."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def set_up_logging(level: str) -> None:
    """Send the log to standard error, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("runmesh").setLevel(_LEVELS[level])
