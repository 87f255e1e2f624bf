"""Groups of the kernel's own (cgroup v2) that hold the limits of plugins, where one is delegated.

    base: the group that the host was started in
    +-- runmesh-host                                 the host and all the guardians
    +-- runmesh-plugin.PID.START.N.author.name       one start of a plugin, and all that it starts

The host makes the group of a start and sets its limits; the guardian puts the plugin's process into
it, tells when the kernel killed it for its memory, and removes it when nothing is left. PID and
START are the host's: what a host that died left behind is known by them, and removed by the next.
"""

import itertools
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from host_service.supervisor.cgroup_place import (
    CONTROLLERS,
    HOST_GROUP,
    base_of,
    check_delegated,
    enabled_in,
    own_group,
    processes_in,
    strangers_in,
)
from host_service.supervisor.errors import CgroupUnusable
from host_service.supervisor.guardian import remove_group, started_at
from host_service.supervisor.manifest import Limits

_log = logging.getLogger("runmesh.supervisor")

_PREFIX = "runmesh-plugin."
# Of which `cpu` gives the processes of a group a share; the kernel's own default.
_PERIOD_MICROSECONDS = 100_000
_LEAST_MICROSECONDS = 1_000
_MOVES = 5


class CgroupUse(StrEnum):
    """Whether cgroups hold the limits of plugins."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class PluginCgroup:
    """The group of one start of a plugin.

    Attributes:
        folder: Where it is.
        holds: The controllers that hold limits in it, of `memory` and `cpu`.
    """

    folder: Path
    holds: frozenset[str]

    def remove(self) -> None:
        """Kills whatever is in it, and removes it; nothing happens when it is gone. Blocks."""
        remove_group(str(self.folder))


class DelegatedCgroup:
    """A group in which this host makes one for each start of a plugin. Its methods block.

    Args:
        base: Its folder.

    Attributes:
        holds: The controllers that hold limits below it, of `memory` and `cpu`.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.holds = enabled_in(base)
        self._owner = f"{os.getpid()}.{started_at(os.getpid())}"
        self._numbers = itertools.count(1)

    @classmethod
    def enter(
        cls,
        process: Path = Path("/proc/self"),
        *,
        service_manager: Path = Path("/run/systemd/system"),
    ) -> "DelegatedCgroup":
        """Makes the group that this process is in ready for groups of plugins.

        The process itself moves to a group below it, and stays there.

        Args:
            process: This process's folder in `/proc`.
            service_manager: A folder that is there where systemd rules over all groups.

        Raises:
            CgroupUnusable: There is none that was delegated to this process.
        """
        base = look(process, service_manager=service_manager)
        try:
            _make_room(base)
        except OSError as error:
            raise CgroupUnusable(f"cgroup {base}: {error.strerror}") from error
        refused = ""
        for controller in CONTROLLERS:
            try:
                (base / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError as error:
                refused = f"{controller}: {error.strerror}"
        delegated = cls(base)
        if not delegated.holds:
            raise CgroupUnusable(f"cgroup {base} hands nothing down ({refused})")
        return delegated

    def make(self, plugin_id: str, limits: Limits) -> PluginCgroup:
        """Makes a group for one start of a plugin, in which its limits hold.

        Raises:
            OSError: It cannot be made.
        """
        name = f"{self._owner}.{next(self._numbers)}.{plugin_id.replace('/', '.')}"
        group = PluginCgroup(self.base / f"{_PREFIX}{name}", self.holds)
        group.folder.mkdir()
        try:
            for file, value in self._settings(limits):
                (group.folder / file).write_text(value)
            for file, value in self._where_known(limits):
                if (group.folder / file).exists():
                    (group.folder / file).write_text(value)
        except OSError:
            group.remove()
            raise
        return group

    def remove_leftovers(self) -> None:
        """Ends and removes what hosts left behind that are no more."""
        for folder in self.base.glob(f"{_PREFIX}*"):
            process, _, rest = folder.name.removeprefix(_PREFIX).partition(".")
            if process.isdigit() and started_at(int(process)) != rest.partition(".")[0]:
                _log.warning("removing what a host that is gone left running in %s", folder.name)
                remove_group(str(folder))

    def _settings(self, limits: Limits) -> Iterator[tuple[str, str]]:
        if limits.memory_bytes and "memory" in self.holds:
            yield "memory.max", str(limits.memory_bytes)
        if limits.cpu and "cpu" in self.holds:
            quota = max(round(limits.cpu * _PERIOD_MICROSECONDS), _LEAST_MICROSECONDS)
            yield "cpu.max", f"{quota} {_PERIOD_MICROSECONDS}"

    def _where_known(self, limits: Limits) -> Iterator[tuple[str, str]]:
        if limits.memory_bytes and "memory" in self.holds:
            # Memory that was swapped out would not count.
            yield "memory.swap.max", "0"
            # A plugin of which only one process was killed is broken without a word.
            yield "memory.oom.group", "1"


def look(
    process: Path = Path("/proc/self"),
    *,
    service_manager: Path = Path("/run/systemd/system"),
) -> Path:
    """Finds the group that plugins could have groups in, and changes nothing.

    Raises:
        CgroupUnusable: There is none that was delegated to the process.
    """
    if sys.platform != "linux":
        raise CgroupUnusable("only Linux has cgroups")
    base = base_of(own_group(process))
    process_id = os.getpid() if process.name == "self" else int(process.name)
    check_delegated(base, process_id=process_id, service_manager=service_manager)
    return base


def enter_cgroup(use: CgroupUse) -> DelegatedCgroup | None:
    """Sees to it that cgroups hold the limits of plugins, where that is wanted and possible.

    Returns:
        Where; None where a watch on the resident size and fixed processors do instead.

    Raises:
        CgroupUnusable: They must, and cannot.
    """
    if use is CgroupUse.OFF:
        return None
    try:
        delegated = DelegatedCgroup.enter()
    except CgroupUnusable as reason:
        if use is CgroupUse.ON:
            raise
        _log.info("memory limits of plugins are held by a watch: %s", reason)
        return None
    delegated.remove_leftovers()
    held = ", ".join(sorted(delegated.holds))
    _log.info("limits of plugins are held by cgroups in %s: %s", delegated.base, held)
    return delegated


def in_force_for(process_id: int) -> DelegatedCgroup | None:
    """The groups in which a running host holds the limits of its plugins, or None."""
    try:
        group = own_group(Path(f"/proc/{process_id}"))
    except CgroupUnusable:
        return None
    return DelegatedCgroup(group.parent) if group.name == HOST_GROUP else None


def _make_room(base: Path) -> None:
    """Moves this process, and others that are the host's own, out of the way of groups."""
    inner = base / HOST_GROUP
    inner.mkdir(exist_ok=True)
    _move(os.getpid(), inner)
    if not (base / "cgroup.type").exists():
        return
    # What is moved may start another meanwhile.
    for _ in range(_MOVES):
        others = processes_in(base) - strangers_in(base, os.getpid())
        for process in others:
            _move(process, inner)
        if not others:
            break


def _move(process: int, group: Path) -> None:
    try:
        (group / "cgroup.procs").write_text(str(process))
    except ProcessLookupError:
        # It has ended.
        return
