"""Signals that end a command, turned into something its event loop can act on."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """SIGINT, SIGTERM and SIGHUP while a command's coroutine runs.

    Until somebody else takes them they cancel the task that entered, which then finds in `received`
    why it was cancelled.

    Attributes:
        received: The last of them, or None.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._act: Callable[[], None] = lambda: None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Listens for the signals, on behalf of the current task."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        self._act = task.cancel if task else self._act  # type: ignore[assignment]
        for number in _ENDING:
            loop.add_signal_handler(number, self._receive, number)
        try:
            yield
        finally:
            for number in _ENDING:
                loop.remove_signal_handler(number)

    @contextmanager
    def taken_by(self, act: Callable[[], None]) -> Iterator[None]:
        """Lets somebody else act on the signals for a while."""
        before, self._act = self._act, act
        try:
            yield
        finally:
            self._act = before

    @property
    def exit_status(self) -> int:
        """What a shell expects of a process that a signal ended."""
        return 128 + (self.received or signal.SIGINT)

    def _receive(self, number: signal.Signals) -> None:
        self.received = number
        self._act()
