"""What a plugin's process sees of the world: an environment made for it, never the host's own."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from host_service.supervisor.manifest import Limits, PluginManifest

_log = logging.getLogger("runmesh.supervisor")

# Where programs are, and how people write: no secret is ever there.
_GIVEN = ("PATH", "LANG", "TZ")
_GIVEN_PREFIX = "LC_"


@dataclass(frozen=True, slots=True)
class ChildPolicy:
    """What an operator lets plugins have.

    Attributes:
        allowed_env: Names of variables that a plugin may ask for in `run.env`; a name that ends in
            `*` stands for all that begin so.
        limits: What holds where a manifest sets no limit of its own; where both do, the smaller.
    """

    allowed_env: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)

    def allows(self, name: str) -> bool:
        """Whether a plugin may have the variable."""
        return any(
            name.startswith(each[:-1]) if each.endswith("*") else name == each
            for each in self.allowed_env
        )


@dataclass(frozen=True, slots=True)
class PrivateFolders:
    """The folders of one plugin that nobody else uses, each of mode 0700.

    Attributes:
        home: Kept from start to start.
        temporary: For what need not be kept.
    """

    home: Path
    temporary: Path

    @classmethod
    def within(cls, base: Path, plugin_id: str) -> "PrivateFolders":
        """Makes the folders of a plugin below `base`, unless they are there."""
        author, _, name = plugin_id.partition("/")
        folders = cls(base / author / name / "home", base / author / name / "tmp")
        for folder in (base, base / author, base / author / name, folders.home, folders.temporary):
            folder.mkdir(mode=0o700, parents=folder == base, exist_ok=True)
        return folders


def child_environment(
    manifest: PluginManifest,
    *,
    listen: str,
    folders: PrivateFolders,
    policy: ChildPolicy,
    host: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Makes the environment of a plugin's process.

    Args:
        manifest: What the plugin asks for.
        listen: The address it shall serve.
        folders: Its home and its folder for temporary files.
        policy: What it may have of what it asks for.
        host: The host's own environment, of which nothing else is passed on.
    """
    given = {
        name: value
        for name, value in host.items()
        if name in _GIVEN or name.startswith(_GIVEN_PREFIX)
    }
    for name in manifest.env:
        if not policy.allows(name):
            _log.warning("%s asks for %s, which policy does not give", manifest.plugin_id, name)
        elif name in host:
            given[name] = host[name]
    return given | {
        "HOME": str(folders.home),
        "TMPDIR": str(folders.temporary),
        "RUNMESH_LISTEN": listen,
        "RUNMESH_PLUGIN_ID": manifest.plugin_id,
        "RUNMESH_SUPERVISED": "1",
    }
