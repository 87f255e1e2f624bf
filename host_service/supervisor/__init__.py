"""Starts the processes of plugins, watches over them, and leaves nothing of them behind."""

from host_service.supervisor.cgroups import CgroupUse, DelegatedCgroup, enter_cgroup
from host_service.supervisor.environment import ChildPolicy
from host_service.supervisor.errors import (
    CgroupUnusable,
    ManifestInvalid,
    SocketPathTooLong,
    SupervisorError,
)
from host_service.supervisor.manifest import Limits, PluginManifest, read_manifest
from host_service.supervisor.restart import RestartPolicy
from host_service.supervisor.sockets import SocketFolder
from host_service.supervisor.supervisor import Supervisor

__all__ = [
    "CgroupUnusable",
    "CgroupUse",
    "ChildPolicy",
    "DelegatedCgroup",
    "Limits",
    "ManifestInvalid",
    "PluginManifest",
    "RestartPolicy",
    "SocketFolder",
    "SocketPathTooLong",
    "Supervisor",
    "SupervisorError",
    "enter_cgroup",
    "read_manifest",
]
