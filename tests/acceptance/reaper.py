"""Runs a command, and says whether a process that it started outlives it.

As the subreaper of Linux it becomes the parent of every process whose own parents are gone, in
whatever session or group they are. What is still there a moment after the command has ended is
named, killed, and makes the exit status 99.
"""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_SECONDS = 2.0
_LEFT_BEHIND = 99


def main() -> int:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    status = subprocess.run(sys.argv[1:], check=False).returncode
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while left := _children():
        if time.monotonic() > deadline:
            for child in left:
                words = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                sys.stderr.write(f"left behind: {child} {words}\n")
                os.kill(child, 9)
            return _LEFT_BEHIND
        time.sleep(0.02)
    return status


def _children() -> list[int]:
    """The children that have not ended; those that have are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return []
    return [int(child) for child in Path("/proc/thread-self/children").read_text().split()]


if __name__ == "__main__":
    sys.exit(main())
