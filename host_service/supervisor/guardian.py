"""Runs one plugin's process, and leaves nothing of it behind, whatever happens to the host.

A program of its own, started by the host as `python -I -S guardian.py STATUS_FD INPUT_FD OPEN_FILES
PROCESSORS MEMORY_BYTES CGROUP FOLDER PLUGIN COMMAND [ARGUMENT ...]` (INPUT_FD, what the process
reads as its stdin, -1: nothing; of the other numbers 0: no limit; CGROUP a folder, empty: none). It
imports little, so that it starts in milliseconds, and does nothing but this:

    host --pipe on stdin--> guardian --fork--> the plugin's process --> whatever that starts
         <--status pipe---           <--------------- orphans ---------------+

- The host writes `stop SECONDS` on the pipe, or dies: its end of the pipe closes, by `kill -9` too.
- The guardian is the child subreaper (Linux): a descendant that lost its parent becomes its child,
  in whichever group or session it is. So when it has no child left, nothing of the plugin is left.
- Where the plugin has a cgroup, its process is put there before it becomes the plugin's. The group
  is killed as a whole, and removed at the end.
- Status lines: `started PID`, or `failed STAGE ERRNO` (stage `setup`, `cgroup`, `limits`, `folder`
  or `command`); then `exited CODE` or `killed SIGNAL`; before that `memory BYTES` when it used too
  much, and `starved 0` when the kernel killed it though it did not. The pipe closes when nothing is
  left.

Elsewhere than on Linux there is no subreaper: there it kills the plugin's process group only.
"""

# pathlib alone would double the time that this takes to start.
# ruff: noqa: PTH123, PTH208

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# What a plugin gets to end itself when nobody said how long.
_HOST_DIED_GRACE_SECONDS = 1.5
_LEFTOVERS_GRACE_SECONDS = 1.0

_MEMORY_LOOK_SECONDS = 1.0
_FIRST_KILL_PAUSE_SECONDS = 0.005
_LONGEST_KILL_PAUSE_SECONDS = 0.5
_REMOVE_SECONDS = 2.0


def main(arguments: list[str]) -> int:
    """Starts the command, and returns when nothing of it is left."""
    status_fd, input_fd, open_files, processors, memory_bytes = map(int, arguments[1:6])
    cgroup, folder, _plugin, *command = arguments[6:]
    os.set_inheritable(status_fd, False)  # noqa: FBT003 - its signature
    tell = _teller(status_fd)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wakeup = _wake_on_signals()
    process = start(
        command,
        folder=folder,
        input_fd=input_fd,
        open_files=open_files,
        processors=processors,
        cgroup=cgroup,
        tell=tell,
    )
    if process is not None:
        tell(f"started {process}")
        guard = Guard(process, memory_bytes=memory_bytes, cgroup=cgroup, tell=tell)
        guard.watch(control=0, wakeup=wakeup)
    if cgroup:
        remove_group(cgroup)
    return 0 if process is not None else 1


def start(
    command: list[str],
    *,
    folder: str,
    input_fd: int,
    open_files: int,
    processors: int,
    cgroup: str,
    tell: Callable[[str], None],
) -> int | None:
    """Starts the plugin's process in a session of its own; None when that failed, and was told."""
    parent = os.getpid()
    fault_end, child_end = os.pipe()
    child = os.fork()
    if child == 0:
        _become(
            command,
            folder=folder,
            input_fd=input_fd,
            open_files=open_files,
            processors=processors,
            cgroup=cgroup,
            parent=parent,
            fault_fd=child_end,
        )
    os.close(child_end)
    if input_fd >= 0:
        # Whoever writes there is to see when the process has closed it.
        os.close(input_fd)
    with os.fdopen(fault_end, "rb") as faults:
        # It ends with the child's exec, which closes the other end.
        fault = faults.read().decode()
    if fault:
        os.waitpid(child, 0)
        tell(f"failed {fault}")
        return None
    return child


def _become(
    command: list[str],
    *,
    folder: str,
    input_fd: int,
    open_files: int,
    processors: int,
    cgroup: str,
    parent: int,
    fault_fd: int,
) -> NoReturn:
    """Turns this new process into the plugin's; never returns."""
    stage = "setup"
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        _reset_signals()
        source = input_fd if input_fd >= 0 else os.open(os.devnull, os.O_RDWR)
        os.dup2(source, 0)
        os.close(source)
        if cgroup:
            stage = "cgroup"
            _write(f"{cgroup}/cgroup.procs", "0")
        if open_files:
            stage = "limits"
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            least = open_files if hard == resource.RLIM_INFINITY else min(open_files, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (least, least))
        if processors:
            stage = "limits"
            _take_processors(processors)
        stage = "folder"
        os.chdir(folder)
        stage = "command"
        os.execvp(command[0], command)  # noqa: S606 - starting what the host names is its whole task
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else 0
        os.write(fault_fd, f"{stage} {number}".encode())
    finally:
        os._exit(127)


def _take_processors(count: int) -> None:
    """Keeps to so many processors; what this process starts inherits it."""
    if sys.platform != "linux":
        return
    mine = sorted(os.sched_getaffinity(0))
    # Not the same ones for all plugins: where one begins follows from its process.
    first = os.getpid() % len(mine)
    os.sched_setaffinity(0, [*mine[first:], *mine[:first]][:count])


def _reset_signals() -> None:
    """Undoes what Python set up: a plugin starts with every signal at its default."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class Guard:
    """Watches the plugin's process, and ends all of it when the host says so or is gone.

    Args:
        process: The plugin's process, leader of its own group.
        memory_bytes: The resident size that it and its descendants may have together; 0: any.
        tell: Writes a status line.
        cgroup: The folder of the group that it is in; empty: it has none.
    """

    def __init__(
        self, process: int, *, memory_bytes: int, tell: Callable[[str], None], cgroup: str = ""
    ) -> None:
        self._process = process
        self._memory_bytes = memory_bytes
        self._cgroup = cgroup
        self._tell = tell
        self._exited = False
        self._kill_at: float | None = None
        self._kill_pause_seconds = _FIRST_KILL_PAUSE_SECONDS
        self._next_look = time.monotonic()

    def watch(self, *, control: int, wakeup: int) -> None:
        """Returns when nothing of the plugin is left.

        Args:
            control: Where the host's words come from, and where its end shows.
            wakeup: Where a byte arrives for every signal.
        """
        poller = select.poll()
        poller.register(control, select.POLLIN)
        poller.register(wakeup, select.POLLIN)
        while self._reap():
            events = poller.poll(self._pause_milliseconds())
            for descriptor, _ in events:
                data = os.read(descriptor, 4096)
                if descriptor == wakeup:
                    if signal.SIGTERM in data:
                        self._stop(_HOST_DIED_GRACE_SECONDS)
                    continue
                if not data:
                    poller.unregister(control)
                self._stop(_grace_seconds(data))
            self._watch_memory()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._kill()

    def _pause_milliseconds(self) -> float | None:
        if self._kill_at is not None:
            return max(self._kill_at - time.monotonic(), 0.0) * 1000 + 1
        return _MEMORY_LOOK_SECONDS * 1000 if self._memory_bytes else None

    def _reap(self) -> bool:
        """Collects children that have ended; False when there is none left."""
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if child == 0:
                return True
            if child == self._process:
                self._exited = True
                if self._cgroup:
                    self._tell_of_memory()
                code = os.waitstatus_to_exitcode(status)
                self._tell(f"exited {code}" if code >= 0 else f"killed {-code}")
                if self._kill_at is None:
                    self._stop(_LEFTOVERS_GRACE_SECONDS)

    def _stop(self, grace_seconds: float) -> None:
        """Asks everything to end, once, and sets the time when it is made to."""
        kill_at = time.monotonic() + grace_seconds
        if self._kill_at is not None:
            self._kill_at = min(self._kill_at, kill_at)
            return
        self._kill_at = kill_at
        self._signal_all(signal.SIGTERM)
        # One that was stopped can end itself only when it goes on.
        self._signal_all(signal.SIGCONT)

    def _tell_of_memory(self) -> None:
        """Tells whether the kernel killed in the group, and whether for the group's own limit."""
        if _count(f"{self._cgroup}/memory.events", b"oom_kill"):
            own = _count(f"{self._cgroup}/memory.events", b"oom")
            self._tell(f"memory {peak_bytes(self._cgroup)}" if own else "starved 0")

    def _kill(self) -> None:
        if self._cgroup:
            kill_group(self._cgroup)
        self._signal_all(signal.SIGKILL)
        # What is killed takes a moment to go, and may have started something meanwhile.
        self._kill_at = time.monotonic() + self._kill_pause_seconds
        self._kill_pause_seconds = min(self._kill_pause_seconds * 2, _LONGEST_KILL_PAUSE_SECONDS)

    def _signal_all(self, number: int) -> None:
        """Signals the plugin's group, and every descendant outside it, each once."""
        found = list(descendants())
        # The number of an empty group may be somebody else's by now.
        if not self._exited or any(group == self._process for _, group in found):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process, number)
        for process, group in found:
            if group != self._process:
                # It ended meanwhile, or runs as somebody else: then only that user can end it.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)

    def _watch_memory(self) -> None:
        if not self._memory_bytes or self._kill_at is not None:
            return
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _MEMORY_LOOK_SECONDS
        used = sum(resident_bytes(process) for process, _ in descendants())
        if used > self._memory_bytes:
            self._tell(f"memory {used}")
            self._stop(0.0)


def descendants() -> Iterator[tuple[int, int]]:
    """Yields process and group of every living descendant; nothing where there is no /proc."""
    children: dict[int, list[tuple[int, int]]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # After the name, which may hold anything: state, parent, group.
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                # It ended while we looked.
                continue
            if len(fields) > 2 and fields[0] != b"Z":
                children.setdefault(int(fields[1]), []).append((int(name), int(fields[2])))
    waiting = [os.getpid()]
    while waiting:
        for process, group in children.get(waiting.pop(), ()):
            waiting.append(process)
            yield process, group


def resident_bytes(process: int) -> int:
    """The resident size of a process; 0 when it is gone."""
    try:
        with open(f"/proc/{process}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def started_at(process: int) -> str:
    """When a process was started, as the kernel counts; empty when there is none."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def kill_group(cgroup: str) -> None:
    """Kills all that is in a cgroup and in those below it, whatever became of its parents."""
    try:
        _write(f"{cgroup}/cgroup.kill", "1")
    except OSError:
        # Older kernels have no such file.
        for folder, _, _ in os.walk(cgroup):
            for process in _numbers(f"{folder}/cgroup.procs"):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)


def remove_group(cgroup: str) -> bool:
    """Kills what is left in a cgroup and removes it, with those below it; False: it cannot."""
    late_at = time.monotonic() + _REMOVE_SECONDS
    pause_seconds = _FIRST_KILL_PAUSE_SECONDS
    while os.path.isdir(cgroup):  # noqa: PTH112
        if _numbers(f"{cgroup}/cgroup.procs") or os.path.exists(f"{cgroup}/cgroup.kill"):  # noqa: PTH110
            kill_group(cgroup)
        for folder, _, _ in os.walk(cgroup, topdown=False):
            # Busy as long as what was killed is on its way out.
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106
        if time.monotonic() >= late_at:
            return False
        time.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 2, _LONGEST_KILL_PAUSE_SECONDS)
    return True


def peak_bytes(cgroup: str) -> int:
    """The most memory that a cgroup had; its limit where the kernel keeps no record."""
    for name in ("memory.peak", "memory.max"):
        numbers = _numbers(f"{cgroup}/{name}")
        if numbers:
            return numbers[0]
    return 0


def _count(path: str, name: bytes) -> int:
    """A number from a file of lines of a name and a number; 0 where there is none."""
    try:
        with open(path, "rb") as file:
            return next((int(line.split()[1]) for line in file if line.split()[0] == name), 0)
    except (OSError, ValueError, IndexError):
        return 0


def _numbers(path: str) -> list[int]:
    try:
        with open(path, "rb") as file:
            return [int(word) for word in file.read().split() if word.isdigit()]
    except OSError:
        return []


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _grace_seconds(data: bytes) -> float:
    """What the host granted with its last word, or what it gets when the host is gone."""
    words = data.split()
    if len(words) >= 2 and words[-2] == b"stop":
        return float(words[-1])
    return _HOST_DIED_GRACE_SECONDS


def _wake_on_signals() -> int:
    """Makes signals arrive as bytes on a descriptor, each the number of the signal."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The host's thread may have had some blocked.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return reader


def _teller(status_fd: int) -> Callable[[str], None]:
    def tell(line: str) -> None:
        # A host that is gone hears nothing; the other pipe tells of it.
        with contextlib.suppress(BrokenPipeError):
            os.write(status_fd, f"{line}\n".encode())

    return tell


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option})")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
