"""Processes and their open sockets, as Linux shows them."""

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LISTEN_STATE = "0A"
_ACCEPTING_FLAG = 0x10000


@dataclass(frozen=True, slots=True)
class Process:
    """One process; the time of its start tells it from a later one with the same id."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        """Whether it runs; one that ended and was not collected does not."""
        stat = _stat(self.pid)
        return stat is not None and stat[19] == self.started and stat[0] != "Z"

    @property
    def command(self) -> str:
        """Its command line."""
        return Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def descendants(pid: int) -> frozenset[Process]:
    """All that a process started, and what those started."""
    children: dict[int, list[Process]] = {}
    for entry in Path("/proc").iterdir():
        stat = _stat(int(entry.name)) if entry.name.isdecimal() else None
        if stat is not None:
            children.setdefault(int(stat[1]), []).append(Process(int(entry.name), stat[19]))
    found: set[Process] = set()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found.add(child)
            waiting.append(child.pid)
    return frozenset(found)


def tcp_listeners(pid: int) -> list[str]:
    """The addresses on which a process listens, in the kernel's hexadecimal."""
    inodes = set(_socket_inodes(pid))
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTEN_STATE and words[9] in inodes:
                addresses.append(words[1])
    return addresses


def unix_listeners(pid: int) -> list[str]:
    """The paths on which a process listens; one that begins with @ is no file."""
    inodes = set(_socket_inodes(pid))
    paths = []
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[3], 16) & _ACCEPTING_FLAG and words[6] in inodes:
            paths.append(words[7])
    return paths


def _socket_inodes(pid: int) -> Iterator[str]:
    for link in open_files(pid):
        if link.startswith("socket:["):
            yield link[len("socket:[") : -1]


def open_files(pid: int) -> Iterator[str]:
    """What the descriptors of a process stand for; nothing for one that has ended."""
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return
    for descriptor in descriptors:
        try:
            yield str(descriptor.readlink())
        except FileNotFoundError:
            continue


def resident_bytes(pid: int) -> int:
    """How much memory a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()
