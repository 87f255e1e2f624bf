"""Files that are read again when they change.

A task looks at them, again and again; who uses what was read takes `value` whenever it needs it, on
any thread, and sees by `version` whether it is another one. What cannot be used is told once, and
the last good value stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from host_service.certificates.errors import CertificateUnusable

_log = logging.getLogger("runmesh.certificates")

Value = TypeVar("Value")
_Traces = tuple[tuple[int, int, int] | None, ...]

_LOOK_SECONDS = 1.0


class Watched(Generic[Value]):
    """What was read from some files.

    Args:
        name: What they are, for the log.
        paths: The files.
        read: Reads and checks them.

    Attributes:
        value: What was read last that could be used.
        version: Counts its changes.

    Raises:
        CertificateUnusable: They cannot be used from the start.
    """

    def __init__(self, name: str, paths: Sequence[Path], read: Callable[[], Value]) -> None:
        self._name = name
        self._paths = tuple(paths)
        self._read = read
        self._seen = self._traces()
        self._failing: _Traces | None = None
        self._told = ""
        self.value = read()
        self.version = 1
        self._changed = asyncio.Event()

    def look(self) -> bool:
        """Reads the files again if they changed; returns whether there is a new value."""
        traces = self._traces()
        if traces == self._seen:
            self._failing = None
            return False
        try:
            value = self._read()
        except CertificateUnusable as error:
            self._tell(traces, str(error))
            return False
        if self._traces() != traces:
            # Somebody writes them now.
            return False
        self._seen, self._failing, self._told = traces, None, ""
        self.value = value
        self.version += 1
        _log.info("%s were read again", self._name)
        return True

    def announce(self) -> None:
        """Wakes whoever waits for a change; on the event loop."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, since: int) -> None:
        """Returns once the version is another than the one given."""
        while self.version == since:
            await self._changed.wait()

    def _tell(self, traces: _Traces, problem: str) -> None:
        # A certificate and its key are replaced one after the other: what is wrong in between is
        # right at the next look.
        if traces != self._failing:
            self._failing = traces
        elif problem != self._told:
            self._told = problem
            _log.error("%s cannot be used, and the old ones stay: %s", self._name, problem)

    def _traces(self) -> _Traces:
        return tuple(map(_trace, self._paths))


async def keep_watched(*watched: Watched[Value], look_seconds: float = _LOOK_SECONDS) -> None:
    """Looks at files until cancelled.

    Args:
        *watched: The files.
        look_seconds: How often.
    """
    while True:
        await asyncio.sleep(look_seconds)
        for each in watched:
            # A folder may be on a slow or a dead network.
            if await asyncio.to_thread(each.look):
                each.announce()


def _trace(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
