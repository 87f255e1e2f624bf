"""Where in the cgroup v2 file system a process is, and whether plugins may have groups there.

Nothing is changed here. A process finds its group in `/proc/PID/cgroup` (the line `0::/path`) and
the folder of that in `/proc/PID/mountinfo`, which shows what is mounted as the process sees it: a
container with a cgroup namespace sees its own group as `/`, one without sees only a part of the
tree mounted, and a machine that also has version 1 mounts version 2 beside it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from host_service.supervisor.errors import CgroupUnusable

#: The group that a host moves itself to: one that has groups below it may have no process.
HOST_GROUP = "runmesh-host"

#: What holds limits.
CONTROLLERS = ("memory", "cpu")

_ESCAPED = re.compile(r"\\([0-7]{3})")
# Of the two only root can read and write the first.
_PROMISES = ("trusted.delegate", "user.delegate")


def own_group(process: Path = Path("/proc/self")) -> Path:
    """The folder of the cgroup that a process is in.

    Args:
        process: Its folder in `/proc`.

    Raises:
        CgroupUnusable: There is none that can be reached.
    """
    try:
        lines = (process / "cgroup").read_text().splitlines()
        mounts = (process / "mountinfo").read_text()
    except OSError as error:
        raise CgroupUnusable(f"this system tells of no cgroups ({error.strerror})") from error
    place = next((line[3:] for line in lines if line.startswith("0::")), None)
    if place is None:
        raise CgroupUnusable("this system has no cgroup v2")
    for mounted, root in _mounts(mounts):
        below = _below(place, root)
        if below is not None and (mounted / below / "cgroup.procs").exists():
            return mounted / below
    raise CgroupUnusable(f"cgroup {place} is not mounted here")


def base_of(group: Path) -> Path:
    """Where the groups of plugins go: beside the host's, when that is in its own already."""
    return group.parent if group.name == HOST_GROUP else group


def controllers_of(base: Path) -> frozenset[str]:
    """What could hold limits in groups below `base`."""
    return _words(base / "cgroup.controllers") & frozenset(CONTROLLERS)


def enabled_in(base: Path) -> frozenset[str]:
    """What holds limits in groups below `base` now."""
    return _words(base / "cgroup.subtree_control") & frozenset(CONTROLLERS)


def check_delegated(base: Path, *, process_id: int, service_manager: Path) -> None:
    """Checks that groups may be made in a group.

    Args:
        base: The folder of the group.
        process_id: The host that would be in it.
        service_manager: A folder that is there where systemd rules over all groups.

    Raises:
        CgroupUnusable: They may not be; the text says why.
    """
    if not controllers_of(base):
        raise CgroupUnusable(f"neither memory nor cpu is handed down to cgroup {base}")
    needed = (base, base / "cgroup.procs", base / "cgroup.subtree_control")
    if not all(os.access(each, os.W_OK) for each in needed):
        raise CgroupUnusable(f"cgroup {base} belongs to somebody else")
    if "threaded" in _words(base / "cgroup.type"):
        raise CgroupUnusable(f"cgroup {base} is threaded")
    if os.geteuid() == 0 and service_manager.exists() and not _is_promised(base):
        # Root may write anywhere, but systemd takes back what it did not give.
        raise CgroupUnusable(f"systemd keeps cgroup {base} for itself")
    strangers = strangers_in(base, process_id)
    if strangers:
        raise CgroupUnusable(f"{len(strangers)} other processes are in cgroup {base}")


def strangers_in(base: Path, process_id: int) -> frozenset[int]:
    """The processes in a group that a host must not move away.

    In a container everything belongs to the host's own service, and at the root of the tree
    processes may stay beside groups.
    """
    inside = processes_in(base)
    is_container, is_root = 1 in inside, not (base / "cgroup.type").exists()
    return frozenset() if is_container or is_root else inside - {process_id}


def processes_in(group: Path) -> frozenset[int]:
    """The processes that are in a group itself."""
    return frozenset(int(each) for each in _words(group / "cgroup.procs"))


def _mounts(mountinfo: str) -> Iterator[tuple[Path, str]]:
    """Yields where cgroup v2 is mounted, and which part of it."""
    for line in mountinfo.splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.split(" ", 1)[0] == "cgroup2":
            root, mounted = fields.split(" ")[3:5]
            yield Path(_unescaped(mounted)), _unescaped(root)


def _unescaped(path: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), path)


def _below(place: str, root: str) -> str | None:
    """A group's path from what is mounted; None when it lies elsewhere."""
    if ".." in place.split("/") or ".." in root.split("/"):
        return None
    if root in {"/", place}:
        return place.strip("/") if root == "/" else ""
    return place[len(root) + 1 :] if place.startswith(f"{root}/") else None


def _is_promised(base: Path) -> bool:
    for name in _PROMISES:
        try:
            if os.getxattr(base, name) == b"1":
                return True
        except OSError:
            # Not marked, or the file system has no marks.
            continue
    return False


def _words(file: Path) -> frozenset[str]:
    try:
        return frozenset(file.read_text().split())
    except OSError:
        return frozenset()
