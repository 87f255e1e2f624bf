"""Where installed plugins are: each version in its own folder, and a link to the one that runs.

::

    plugins/acme+weather -> ../plugin-versions/acme+weather/0.2.0-9f86d081884c
    plugin-versions/acme+weather/0.1.0-2c26b46b68ff/     what it was before
                                 0.2.0-9f86d081884c/

To change the version is to replace the link, in one step that cannot be seen half done. A process
of the version before keeps its files until the next change.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from host_service.packages.entry_names import RESERVED_FOLDER
from host_service.packages.errors import InstallFailed
from host_service.supervisor import ManifestInvalid, read_manifest

_RECORD = f"{RESERVED_FOLDER}/install.json"
_STAGING = ".staging-"
# No id has a plus sign, so that no two plugins share a name.
_BETWEEN = "+"
_DIGEST_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is kept of an installation.

    Attributes:
        sha256: The package's digest.
        source: Where it came from, without what may be secret in an address.
        signed_by: Whose trusted signature it had; empty: nobody's.
        installed_at: RFC 3339.
    """

    sha256: str
    source: str
    signed_by: str
    installed_at: str


@dataclass(frozen=True, slots=True)
class Installed:
    """A plugin in the data folder.

    Attributes:
        plugin_id: `author/name`.
        version: Its version.
        place: Its folder or link in `plugins/`.
        record: How it was installed; None: somebody put it there by hand.
    """

    plugin_id: str
    version: str
    place: Path
    record: Record | None


class VersionFolders:
    """The plugins of one data folder.

    Args:
        data_folder: The data folder.
    """

    def __init__(self, data_folder: Path) -> None:
        # Without links on the way: paths are compared with what the plugins' own links lead to.
        self._plugins = data_folder.resolve() / "plugins"
        self._versions = data_folder.resolve() / "plugin-versions"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps others from changing plugins meanwhile, and removes what a killed one left.

        Raises:
            InstallFailed: Another process is changing plugins now.
        """
        for folder in (self._plugins, self._versions):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
        lock = os.open(self._versions / ".lock", flags, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InstallFailed(
                    "another runmesh is changing the plugins of this data folder",
                    "wait until it has ended, and try again",
                ) from error
            for left in self._versions.glob(f"{_STAGING}*"):
                shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            os.close(lock)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A new folder on the same file system, removed at the end with what is still in it."""
        staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self._versions))
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def find(self, plugin_id: str) -> Installed | None:
        """A plugin by its id; None: it is not there."""
        return next((each for each in self.all() if each.plugin_id == plugin_id), None)

    def all(self) -> list[Installed]:
        """Every plugin whose manifest can be read, by id."""
        found = [self._look(place) for place in self._plugins.glob("[!.]*")]
        return sorted((each for each in found if each), key=lambda each: each.plugin_id)

    def keep(self, unpacked: Path, plugin_id: str, version: str, record: Record) -> Path:
        """Gives an unpacked and finished version its lasting place; returns that."""
        folder = self._versions / plugin_id.replace("/", _BETWEEN)
        folder.mkdir(mode=0o700, exist_ok=True)
        (unpacked / _RECORD).write_text(json.dumps(asdict(record)))
        name = f"{version}-{record.sha256[:_DIGEST_DIGITS]}"
        place, number = folder / name, 1
        while place.exists():
            # The one that runs, or left by an installation that failed behind this point.
            number += 1
            place = folder / f"{name}-{number}"
        unpacked.rename(place)
        _sync(folder)
        return place

    def current(self, plugin_id: str) -> Path | None:
        """The folder of the version that runs; None: there is none that was installed."""
        link = self._link(plugin_id)
        return link.resolve() if link.is_symlink() else None

    def switch(self, plugin_id: str, place: Path | None) -> None:
        """Makes a version the one that runs, or none, in one step."""
        link = self._link(plugin_id)
        if place is None:
            link.unlink(missing_ok=True)
        else:
            new = self._plugins / f".{link.name}.new"
            new.unlink(missing_ok=True)
            new.symlink_to(os.path.relpath(place, self._plugins))
            new.replace(link)
        _sync(self._plugins)

    def forget(self, place: Path) -> None:
        """Removes a version."""
        shutil.rmtree(place, ignore_errors=True)

    def forget_older(self, plugin_id: str, *, keep: tuple[Path | None, ...]) -> None:
        """Removes a plugin's versions but those that are named."""
        for place in (self._versions / plugin_id.replace("/", _BETWEEN)).glob("*"):
            if place not in keep:
                shutil.rmtree(place, ignore_errors=True)

    def take_away(self, installed: Installed, staging: Path) -> None:
        """Takes a plugin out of `plugins/` in one step."""
        if installed.place.is_symlink():
            installed.place.unlink()
        else:
            installed.place.rename(staging / installed.place.name)
        _sync(self._plugins)

    def forget_all(self, plugin_id: str) -> None:
        """Removes every version of a plugin that was taken away."""
        shutil.rmtree(self._versions / plugin_id.replace("/", _BETWEEN), ignore_errors=True)

    def _link(self, plugin_id: str) -> Path:
        return self._plugins / plugin_id.replace("/", _BETWEEN)

    def _look(self, place: Path) -> Installed | None:
        try:
            manifest = read_manifest(place)
        except ManifestInvalid:
            return None
        return Installed(manifest.plugin_id, manifest.version, place, _record(place))


def _record(place: Path) -> Record | None:
    # A copy that somebody made of an installed folder is not an installed one.
    if not place.is_symlink():
        return None
    try:
        return Record(**json.loads((place / _RECORD).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _sync(folder: Path) -> None:
    """Makes what happened in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
