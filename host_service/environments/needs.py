"""Which environments the plugins need that are there, and which environments nobody needs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from host_service.environments.errors import EnvironmentProblem
from host_service.environments.shelf import Environment, EnvironmentShelf, KeptEnvironment
from host_service.settings import shipped_plugins_folder
from host_service.supervisor.errors import ManifestInvalid
from host_service.supervisor.folders import PluginFolders
from host_service.supervisor.manifest import PythonModule


@dataclass(frozen=True, slots=True)
class Need:
    """A Python plugin, and the environment that it needs.

    Attributes:
        plugin_id: The plugin.
        folder: Where it is.
        environment: The environment, there or not; None: it asks for what cannot be given.
        problem: Why; empty otherwise.
    """

    plugin_id: str
    folder: Path
    environment: Environment | None
    problem: str = ""


def plugin_places(
    data_folder: Path, more: Iterable[Path] = (), *, versions: bool = False
) -> list[Path]:
    """Where a host with a data folder finds plugins.

    Args:
        data_folder: The data folder.
        more: Further folders of plugin folders.
        versions: Also where installed plugins have the version that may be put back.
    """
    places = [shipped_plugins_folder(), data_folder / "plugins", *more]
    if versions:
        places += sorted((data_folder / "plugin-versions").glob("[!.]*"))
    return [place.absolute() for place in places]


def needs_of(shelf: EnvironmentShelf, bases: Sequence[Path]) -> list[Need]:
    """What the Python plugins below some folders need; those with a broken manifest are left out.

    Args:
        shelf: The environments.
        bases: Folders of plugin folders, or plugin folders themselves.
    """
    return [
        _need_of(shelf, manifest.plugin_id, folder)
        for folder, manifest in PluginFolders(bases).scan().items()
        if not isinstance(manifest, ManifestInvalid) and isinstance(manifest.run, PythonModule)
    ]


def collect_unneeded(
    shelf: EnvironmentShelf, bases: Iterable[Path], *, unused_seconds: float = 0.0
) -> list[KeptEnvironment]:
    """Removes the environments that no plugin needs and none runs in.

    Args:
        shelf: The environments.
        bases: Where plugins are, older versions included. One that is elsewhere keeps its
            environment only while it runs.
        unused_seconds: Keep what was built or used within this time, such as for a plugin that is
            put back.

    Returns:
        What was removed.
    """
    needed = set()
    for folder in PluginFolders(tuple(bases)).scan():
        # Whatever its manifest says: a slip of the pen there must not cost an environment.
        environment = _need_of(shelf, folder.name, folder).environment
        if environment is not None:
            needed.add(environment.key)
    return shelf.collect(needed, unused_seconds=unused_seconds)


def _need_of(shelf: EnvironmentShelf, plugin_id: str, folder: Path) -> Need:
    try:
        environment = shelf.find(shelf.read(folder))
    except (EnvironmentProblem, OSError) as error:
        return Need(plugin_id, folder, None, str(error))
    return Need(plugin_id, folder, environment)
