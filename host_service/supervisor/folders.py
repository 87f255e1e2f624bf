"""Which plugin folders there are, and whether one has changed."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from host_service.supervisor.errors import ManifestInvalid
from host_service.supervisor.manifest import MANIFEST_NAME, PluginManifest, read_manifest

# What changes by itself while a plugin runs, or has too many files to look at.
_NOT_LOOKED_AT = frozenset({"__pycache__", "node_modules", "target", "dist"})
_FILES_LOOKED_AT = 2_000

_Stamp = tuple[int, int, int]


class PluginFolders:
    """The plugins in some folders, each read again only when its manifest has changed.

    Its methods block on the file system: they are called in a thread.

    Args:
        bases: Folders of plugin folders, or plugin folders themselves. A link in one of them stands
            for the folder it leads to: another target is another plugin folder.
    """

    def __init__(self, bases: Sequence[Path]) -> None:
        self._bases = tuple(bases)
        self._known: dict[Path, tuple[_Stamp, PluginManifest | ManifestInvalid]] = {}

    def scan(self) -> dict[Path, PluginManifest | ManifestInvalid]:
        """Every plugin folder there is now, with its manifest or what is wrong with that."""
        known = {}
        for folder in self._folders():
            stamp = _stamp(folder / MANIFEST_NAME)
            if stamp is None:
                continue
            before = self._known.get(folder)
            known[folder] = before if before and before[0] == stamp else (stamp, _read(folder))
        self._known = known
        return {folder: manifest for folder, (_, manifest) in known.items()}

    def _folders(self) -> Iterator[Path]:
        for base in self._bases:
            if (base / MANIFEST_NAME).is_file():
                yield base.absolute()
                continue
            try:
                names = sorted(os.listdir(base))  # noqa: PTH208 - names are all that is needed
            except (FileNotFoundError, NotADirectoryError):
                continue
            yield from (_real(base.absolute() / name) for name in names if not name.startswith("."))


def tree_stamp(folder: Path) -> int:
    """A number that changes when a file in the folder does, of those that are looked at."""
    stamps = ((str(path), _stamp(path)) for path in files_in(folder))
    return hash(tuple((path, stamp) for path, stamp in stamps if stamp is not None))


def files_in(folder: Path) -> Iterator[Path]:
    """Yields the files in a plugin's folder that are looked at."""
    count = 0
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _NOT_LOOKED_AT
        )
        yield from (Path(base, name) for name in sorted(files))
        count += len(files)
        if count >= _FILES_LOOKED_AT:
            break


def _read(folder: Path) -> PluginManifest | ManifestInvalid:
    try:
        return read_manifest(folder)
    except ManifestInvalid as error:
        return error


def _real(folder: Path) -> Path:
    """Where a link leads now: a process keeps its folder, whatever the link says later."""
    return folder.resolve() if folder.is_symlink() else folder


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        # Not there, or not any more, or not for us to see.
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
