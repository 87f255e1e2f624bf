"""Notices that the process that started this one is gone."""

import asyncio
import logging
import os
from collections.abc import Callable

_logger = logging.getLogger("runner_sdk.serve")
_POLL_SECONDS = 0.5


class ParentWatch:
    """Calls back once when this process's parent has ended.

    Where the operating system offers a descriptor of a process, that is watched; elsewhere the
    parent's id is looked at now and then.
    """

    def __init__(self, *, loop: asyncio.AbstractEventLoop, on_gone: Callable[[], None]) -> None:
        self._loop = loop
        self._on_gone = on_gone
        self._parent = os.getppid()
        self._timer: asyncio.TimerHandle | None = None
        self._descriptor: int | None = None

    def start(self) -> None:
        """Starts watching."""
        try:
            self._descriptor = os.pidfd_open(self._parent)
        except (AttributeError, OSError) as error:
            _logger.debug("no descriptor of the parent, looking at its id: %s", error)
            self._look()
            return
        self._loop.add_reader(self._descriptor, self._tell)
        if os.getppid() != self._parent:
            self._tell()

    def stop(self) -> None:
        """Stops watching."""
        if self._timer is not None:
            self._timer.cancel()
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _look(self) -> None:
        if os.getppid() != self._parent:
            self._tell()
        else:
            self._timer = self._loop.call_later(_POLL_SECONDS, self._look)

    def _tell(self) -> None:
        self.stop()
        self._on_gone()
