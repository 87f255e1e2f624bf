"""Runs what a plugin's manifest says for whoever works on it: `run.build` and `run.test`."""

import os
import subprocess
import sys
from pathlib import Path

from host_service.packages.errors import BuildCommandFailed, OwnTestsFailed


def run_own_build(folder: Path, command: str) -> None:
    """Makes a plugin's program, as `run.build` of its manifest says.

    What it prints goes to this process's standard error: standard output is the caller's.

    Args:
        folder: The plugin.
        command: For the shell; empty: there is nothing to make.

    Raises:
        BuildCommandFailed: It failed.
    """
    if not command:
        return
    status = _run(folder, command, quiet=True)
    if status != 0:
        raise BuildCommandFailed(
            f"'{command}' ended with status {status}", "what it says stands above"
        )


def run_own_test_command(folder: Path, command: str) -> bool:
    """Runs a plugin's tests, as `run.test` of its manifest says; returns whether it has any.

    What they print goes where this process prints.

    Args:
        folder: The plugin.
        command: For the shell; empty: there are none.

    Raises:
        OwnTestsFailed: They failed.
    """
    if not command:
        return False
    status = _run(folder, command, quiet=False)
    if status != 0:
        raise OwnTestsFailed(
            f"the plugin's own tests failed: '{command}' ended with {status}",
            "what it says stands above",
        )
    return True


def _run(folder: Path, command: str, *, quiet: bool) -> int:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ran = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=os.environ,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if quiet else None,
    )
    return ran.returncode
