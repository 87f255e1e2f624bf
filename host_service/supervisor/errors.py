"""What can go wrong with plugins that the host starts.

SupervisorError
├── ManifestInvalid      a plugin folder's manifest breaks rules; carries each of them
├── SocketPathTooLong    no folder in which a unix socket's path would be short enough
├── CgroupUnusable       no cgroup was delegated to the host
└── PluginFailed         a process that could not be started, ended, or did not become ready
    ├── FolderMissing       its working directory is not there
    ├── CommandMissing      its command is not there
    ├── CommandUnusable     its command is there and cannot be run
    ├── EnvironmentMissing  its Python environment is not built
    └── ProcessEnded        it ran, and ended by itself
"""

from collections.abc import Sequence
from pathlib import Path

from host_service.registry import ManifestFault


class SupervisorError(Exception):
    """The root of what the supervisor raises."""


class ManifestInvalid(SupervisorError):
    """A plugin folder's manifest breaks rules.

    Attributes:
        faults: Each broken rule: file, field, rule, and what was there.
    """

    def __init__(self, faults: Sequence[ManifestFault]) -> None:
        super().__init__("; ".join(f"{fault.field} {fault.rule}" for fault in faults))
        self.faults = tuple(faults)


class SocketPathTooLong(SupervisorError):
    """No folder in which the path of a unix socket would be short enough.

    Attributes:
        path: The shortest path that was tried.
        size_bytes: Its length.
        limit_bytes: The system's limit.
    """

    def __init__(self, path: Path, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"a unix socket at {path} would have a path of {size_bytes} bytes, and the limit is "
            f"{limit_bytes}: choose a shorter folder for sockets"
        )
        self.path = path
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class CgroupUnusable(SupervisorError):
    """No cgroup was delegated to the host, for those of plugins to be in; the text says why."""


class PluginFailed(SupervisorError):
    """A process that could not be started, ended, or did not become ready; the text says why."""


class FolderMissing(PluginFailed):
    """The working directory of a process is not there, or is no directory."""


class CommandMissing(PluginFailed):
    """The command of a process is not there."""


class CommandUnusable(PluginFailed):
    """The command of a process is there and cannot be run."""


class EnvironmentMissing(PluginFailed):
    """The environment that a plugin asks for is not built, or cannot be; the text says what to do.

    Trying again changes nothing before somebody builds it.
    """


class ProcessEnded(PluginFailed):
    """A process ran, and ended by itself."""
