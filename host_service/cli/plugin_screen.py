"""What is shown while somebody works on a plugin."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from host_service.cli.failures import visible

_SHOWN = ("runmesh.plugin", "runmesh.supervisor")


class Screen(logging.Handler):
    """Shows what the plugin prints, and what happens to it, as it comes.

    Attributes:
        is_gone: Whether nobody reads any more; the task that showed it is cancelled then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_gone = False
        self._leave: Callable[[], object] = lambda: None

    @contextmanager
    def showing(self) -> Iterator["Screen"]:
        """Shows it while the current task is in this context."""
        task = asyncio.current_task()
        self._leave = task.cancel if task is not None else self._leave
        loggers = [logging.getLogger(name) for name in _SHOWN]
        for logger in loggers:
            logger.addHandler(self)
            logger.setLevel(logging.INFO)
        try:
            yield self
        finally:
            for logger in loggers:
                logger.removeHandler(self)

    def say(self, text: str) -> None:
        """Tells what happens, in lines that can be told from the plugin's own."""
        for line in visible(text).splitlines():
            self._print(typer.style(f"runmesh dev: {line}", dim=True))

    def emit(self, record: logging.LogRecord) -> None:
        """Shows a line of the plugin, which has its name."""
        self._print(visible(record.getMessage()))

    def _print(self, line: str) -> None:
        if self.is_gone:
            return
        try:
            # Coloured on a terminal only.
            typer.echo(line)
        except BrokenPipeError:
            self.is_gone = True
            self._leave()
