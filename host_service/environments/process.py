"""Runs an installer, and leaves nothing of it behind: it runs under a guardian, as plugins do."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from host_service.environments.errors import BuildFailed
from host_service.supervisor.child import Launch, guarded_command
from host_service.supervisor.manifest import Limits
from host_service.supervisor.output import LINE_LIMIT_BYTES, readable

_CHUNK_BYTES = 64 * 1024


async def run_installer(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
) -> int:
    """Runs a command, and returns its exit code when nothing of it is left.

    When this process dies, or the call is cancelled, the command and all that it started are ended.

    Args:
        command: The program and its arguments.
        folder: Its working directory.
        environment: All of its environment.
        on_line: Called with each line that it prints, made harmless for a terminal.

    Raises:
        BuildFailed: It could not be started.
    """
    launch = Launch("installer", tuple(command), folder, environment, Limits())
    status, status_writer = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *guarded_command(launch, status_fd=status_writer),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(status_writer,),
            env=dict(environment),
            start_new_session=True,
        )
    except BaseException:
        os.close(status)
        raise
    finally:
        os.close(status_writer)
    try:
        await _follow(process, on_line)
        await process.wait()
        return _exit_code(os.read(status, 4096), command[0])
    finally:
        await _end(process)
        os.close(status)


async def _follow(process: asyncio.subprocess.Process, on_line: Callable[[str], None]) -> None:
    """Reads until the last of what was started has closed its output."""
    if process.stdout is None:
        return
    begun = b""
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        # A carriage return starts a line anew on a terminal: each state of it is a line here.
        *lines, begun = (begun + chunk).replace(b"\r", b"\n").split(b"\n")
        # Of a line without end no more is kept than is shown of it.
        begun = begun[: LINE_LIMIT_BYTES + 1]
        for line in lines:
            if line.strip():
                on_line(readable(line))
    if begun.strip():
        on_line(readable(begun))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        # Without this pipe the guardian ends what is left.
        process.stdin.close()
        with contextlib.suppress(ConnectionError):
            await process.stdin.wait_closed()
    await asyncio.shield(process.wait())


def _exit_code(told: bytes, program: str) -> int:
    for line in told.decode().splitlines():
        word, *numbers = line.split()
        if word == "exited":
            return int(numbers[-1])
        if word == "killed":
            return 128 + int(numbers[-1])
        if word == "failed":
            problem = os.strerror(int(numbers[-1]))
            raise BuildFailed(f"{program} could not be started: {problem}")
    raise BuildFailed(f"{program} was not started")
