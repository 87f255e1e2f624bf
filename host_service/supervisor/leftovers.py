"""What a guardian that was itself killed could not end any more."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path


def kill_leftovers(process_id: int, variable: str) -> None:
    """Kills a plugin's process group, and all that has a variable of its own in the environment.

    Its value is new for every start, and inherited by all that a plugin starts, so that nothing of
    another plugin is ever taken for it.

    Args:
        process_id: The leader of the group.
        variable: The variable and its value, `NAME=value`.
    """
    marker = variable.encode()
    if _is_marked(process_id, marker):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process_id, signal.SIGKILL)
    for process in _processes():
        if _is_marked(process, marker):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def _processes() -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                yield int(entry.name)


def _is_marked(process: int, marker: bytes) -> bool:
    try:
        return marker in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        # It ended, or is somebody else's.
        return False
