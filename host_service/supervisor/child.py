"""One process of a plugin, as the host sees it: started through a guardian, and ended with it.

    host                                guardian                 plugin
    control pipe, writing end  ------>  stdin
    status pipe, reading end   <------  its own descriptor
    stdout, stderr             <------  stdout, stderr  <------  stdout, stderr

The guardian is started with `subprocess` in a thread, which uses vfork and closes every descriptor
but those above: a process with gRPC in it must never run Python code after a fork.
"""

import asyncio
import contextlib
import errno
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from host_service.supervisor import guardian
from host_service.supervisor.cgroups import DelegatedCgroup, PluginCgroup
from host_service.supervisor.errors import (
    CommandMissing,
    CommandUnusable,
    FolderMissing,
    PluginFailed,
)
from host_service.supervisor.leftovers import kill_leftovers
from host_service.supervisor.manifest import Limits
from host_service.supervisor.output import LineBudget, OutputStream, PipeReader

# How long a guardian gets beyond the grace of its plugin before it is no longer waited for.
_GUARDIAN_GRACE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start, and with what.

    Attributes:
        plugin_id: `author/name`, for logs and process lists.
        command: The program and its arguments. A path with a slash is taken from `folder`.
        folder: Its working directory.
        environment: All of its environment.
        limits: What it may use.
        marker: The variable of its environment that no other start has the value of.
        hidden: What is blotted out of all that it prints.
        is_spoken_to: Whether the host writes to its stdin, and what it prints to stdout is an
            answer: no log gets it.
        cgroups: Where it gets a group that holds its limits; None: they are held without.
    """

    plugin_id: str
    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    limits: Limits
    marker: str = "RUNMESH_LISTEN"
    hidden: tuple[str, ...] = field(default=(), repr=False)
    is_spoken_to: bool = False
    cgroups: DelegatedCgroup | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended.

    Attributes:
        code: Its exit code; None when a signal ended it, or when that is not known.
        signal: The signal that ended it, or None.
        memory_bytes: What it used when it was ended for using too much, or None.
        memory_limit_bytes: What it may use; None: any amount.
        starved: Whether the kernel ended it because others left no memory.
    """

    code: int | None = None
    signal: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    starved: bool = False

    def __str__(self) -> str:
        if self.memory_bytes is not None:
            limit, used = _mebibytes(self.memory_limit_bytes or 0), _mebibytes(self.memory_bytes)
            return f"was killed: over its memory limit of {limit} (it used {used})"
        if self.starved:
            return "was killed by the kernel: the machine, or what the host may use, had no memory"
        if self.signal is not None:
            return f"was killed by {_signal_name(self.signal)}"
        if self.code is None:
            return "ended in an unknown way: its guardian was killed"
        # A shell's way to say that what it ran was killed.
        if 128 < self.code < 160:
            return f"exited with code {self.code} (128 + {_signal_name(self.code - 128)})"
        return f"exited with code {self.code}"


class Child:
    """A running process of a plugin.

    Args:
        launch: What was started.
        pipes: The guardian, and this side of its pipes.
        budget: How much of what it prints goes to the log.

    Attributes:
        ended: Done when the process itself has ended; what it started may still be about to.
        stdin: Where it is written to, if it is spoken to; whoever started it closes that.
        stdout: Where its answers are read; likewise.
    """

    def __init__(self, launch: Launch, pipes: "_Pipes", budget: LineBudget) -> None:
        loop = asyncio.get_running_loop()
        self._launch = launch
        self._pipes = pipes
        self._outputs = {
            name: OutputStream(
                plugin_id=launch.plugin_id, name=name, budget=budget, hidden=launch.hidden
            )
            for name in ("stdout", "stderr")
        }
        self.stdin, self.stdout = pipes.stdin, pipes.stdout
        self._readers = [PipeReader(pipes.stderr, self._outputs["stderr"])]
        if not launch.is_spoken_to:
            self._readers.append(PipeReader(pipes.stdout, self._outputs["stdout"]))
        self._memory_bytes: int | None = None
        self._starved = False
        self._status = b""
        self._started: asyncio.Future[int] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[Exit] = loop.create_future()
        os.set_blocking(pipes.status, False)
        loop.add_reader(pipes.status, self._read_status)

    @classmethod
    async def start(cls, launch: Launch, *, budget: LineBudget | None = None) -> "Child":
        """Starts the process.

        Args:
            launch: What to start.
            budget: How much of what it prints goes to the log; None: as much as one of many
                plugins may have.

        Raises:
            FolderMissing: Its working directory is not there.
            CommandMissing: Its command is not there.
            CommandUnusable: Its command is there and cannot be run.
            PluginFailed: It could not be started for another reason.
        """
        spawning = asyncio.create_task(asyncio.to_thread(_spawn, launch))
        try:
            pipes = await asyncio.shield(spawning)
        except asyncio.CancelledError:
            # The thread cannot be called off: what it starts ends as soon as its pipe is closed.
            spawning.add_done_callback(_abandon)
            raise
        except (OSError, ValueError) as error:
            raise PluginFailed(f"its guardian could not be started: {error}") from error
        child = cls(launch, pipes, budget or LineBudget())
        try:
            # Shielded: the future is also this object's own memory of what was started.
            await asyncio.shield(child._started)
        except BaseException:
            if launch.is_spoken_to:
                os.close(child.stdin)
                os.close(child.stdout)
            await child._let_go()
            raise
        return child

    @property
    def process_id(self) -> int:
        """The operating system's id of the process."""
        return self._started.result()

    def tail(self) -> str:
        """The end of what it wrote to stderr, or to stdout when it wrote nothing there."""
        for reader in self._readers:
            reader.drain()
        return self._outputs["stderr"].tail() or self._outputs["stdout"].tail()

    async def stop(self, grace_seconds: float) -> None:
        """Asks it to end, kills what is left of it after the grace, and returns when nothing is."""
        with contextlib.suppress(OSError):
            # The guardian may have ended by itself.
            os.write(self._pipes.control, f"stop {grace_seconds}\n".encode())
        try:
            async with asyncio.timeout(grace_seconds + _GUARDIAN_GRACE_SECONDS):
                await asyncio.shield(self._gone)
        except TimeoutError:
            # It hangs: frozen, or waiting for something that cannot be killed.
            self._pipes.guardian.kill()
        finally:
            await self._let_go()

    async def gone(self) -> None:
        """Returns when the process and all that it started have ended."""
        await asyncio.shield(self._gone)
        await self._let_go()

    async def _let_go(self) -> None:
        # Without its end of this pipe the guardian ends what is left.
        self._pipes.close_control()
        await asyncio.shield(self._gone)
        await asyncio.to_thread(self._pipes.guardian.wait)
        if self._pipes.cgroup is not None:
            # Gone already, unless the guardian was killed.
            await asyncio.to_thread(self._pipes.cgroup.remove)
        for reader in self._readers:
            reader.drain()
            reader.close()

    def _read_status(self) -> None:
        try:
            data = os.read(self._pipes.status, 4096)
        except BlockingIOError:
            return
        *lines, self._status = (self._status + data).split(b"\n")
        for line in lines:
            self._take(line.decode().split())
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipes.status)
            os.close(self._pipes.status)
            self._guardian_ended()

    def _take(self, words: list[str]) -> None:
        kind, number = words[0], int(words[-1])
        if kind == "started":
            self._started.set_result(number)
        elif kind == "failed":
            self._started.set_exception(_start_error(self._launch, words[1], number))
        elif kind == "memory":
            self._memory_bytes = number
        elif kind == "starved":
            self._starved = True
        elif kind == "exited":
            self._end(code=number)
        elif kind == "killed":
            self._end(signal_=number)

    def _end(self, *, code: int | None = None, signal_: int | None = None) -> None:
        if not self.ended.done():
            exit_ = Exit(
                code=code,
                signal=signal_,
                memory_bytes=self._memory_bytes,
                memory_limit_bytes=self._launch.limits.memory_bytes,
                starved=self._starved,
            )
            self.ended.set_result(exit_)

    def _guardian_ended(self) -> None:
        if not self._started.done():
            text = "its guardian ended before it started anything"
            self._started.set_exception(PluginFailed(f"{text}: {self.tail()}"))
        elif not self.ended.done() and self._started.exception() is None:
            # It was killed, and nobody watches over what it leaves behind.
            marker = self._launch.marker
            kill_leftovers(self.process_id, f"{marker}={self._launch.environment[marker]}")
            self._end()
        self._gone.set_result(None)


@dataclass(slots=True)
class _Pipes:
    """A guardian, and the host's side of its pipes."""

    guardian: "subprocess.Popen[bytes]"
    control: int
    status: int
    stdout: int
    stderr: int
    stdin: int = -1
    cgroup: PluginCgroup | None = None

    def close_control(self) -> None:
        if self.control >= 0:
            os.close(self.control)
            self.control = -1


def guarded_command(
    launch: Launch, *, status_fd: int, input_fd: int = -1, cgroup: PluginCgroup | None = None
) -> list[str]:
    """The command that runs something under a guardian, to be started with what `launch` says.

    Args:
        launch: What to run.
        status_fd: A descriptor that it inherits, for the guardian's status lines.
        input_fd: One that it inherits, for what it runs to read; -1: that reads nothing.
        cgroup: The group that it is put into; None: it stays in this process's.
    """
    limits = launch.limits
    # What a group holds needs no other hold.
    holds = cgroup.holds if cgroup is not None else frozenset()
    return [
        *(sys.executable, "-I", "-S", guardian.__file__),
        *(
            str(status_fd),
            str(input_fd),
            str(limits.open_files or 0),
            str(math.ceil(limits.cpu or 0) if "cpu" not in holds else 0),
            str(limits.memory_bytes or 0 if "memory" not in holds else 0),
        ),
        str(cgroup.folder) if cgroup is not None else "",
        *(str(launch.folder), launch.plugin_id, *launch.command),
    ]


def _spawn(launch: Launch) -> _Pipes:
    """Starts a guardian; blocks until its program runs."""
    control_reader, control = os.pipe()
    status, status_writer = os.pipe()
    stdout, stdout_writer = os.pipe()
    stderr, stderr_writer = os.pipe()
    theirs = [control_reader, status_writer, stdout_writer, stderr_writer]
    ours = [control, status, stdout, stderr]
    stdin_reader = stdin = -1
    if launch.is_spoken_to:
        stdin_reader, stdin = os.pipe()
        theirs.append(stdin_reader)
        ours.append(stdin)
    cgroup: PluginCgroup | None = None
    try:
        if launch.cgroups is not None:
            cgroup = launch.cgroups.make(launch.plugin_id, launch.limits)
        command = guarded_command(
            launch, status_fd=status_writer, input_fd=stdin_reader, cgroup=cgroup
        )
        process = subprocess.Popen(
            command,
            stdin=control_reader,
            stdout=stdout_writer,
            stderr=stderr_writer,
            pass_fds=(status_writer, *((stdin_reader,) if launch.is_spoken_to else ())),
            env=dict(launch.environment),
            # Not the plugin's folder: that may be missing, which is for the guardian to tell.
            cwd="/",
            start_new_session=True,
        )
    except BaseException:
        for descriptor in ours:
            os.close(descriptor)
        if cgroup is not None:
            cgroup.remove()
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    return _Pipes(process, control, status, stdout, stderr, stdin, cgroup)


def _abandon(spawning: "asyncio.Task[_Pipes]") -> None:
    if spawning.cancelled() or spawning.exception() is not None:
        return
    pipes = spawning.result()
    for descriptor in (pipes.control, pipes.status, pipes.stdout, pipes.stderr, pipes.stdin):
        if descriptor >= 0:
            os.close(descriptor)
    # Collected, so that no zombie is left; nobody waits for it.
    threading.Thread(target=pipes.guardian.wait, daemon=True).start()


def _start_error(launch: Launch, stage: str, number: int) -> PluginFailed:
    """Tells apart what the system reports with the same few numbers."""
    problem = os.strerror(number)
    program = launch.command[0]
    if stage == "folder":
        return FolderMissing(f"its working directory {launch.folder.name} is not there: {problem}")
    if stage != "command":
        return PluginFailed(f"its {stage} could not be applied: {problem}")
    if number in {errno.ENOENT, errno.ENOTDIR}:
        if "/" in program and (launch.folder / program).exists():
            text = f"the interpreter that {program} names in its first line is not there"
            return CommandUnusable(text)
        return CommandMissing(f"its command {program} is not there")
    if number == errno.EACCES:
        return CommandUnusable(f"its command {program} is not executable: {problem}")
    if number == errno.ENOEXEC:
        return CommandUnusable(f"its command {program} is no program, and no script with a #! line")
    return CommandUnusable(f"its command {program} cannot be run: {problem}")


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.5g} MiB"


def _signal_name(number: int) -> str:
    try:
        return f"signal {number}, {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
