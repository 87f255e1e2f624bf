"""The files of a plugin that somebody works on: which of them count, and which have changed.

They are looked at again and again rather than watched by the kernel: that works on every file
system, costs no watch for each folder of an environment, and is cheap for the few files of a
plugin. Its methods block on the file system: they are called in a thread.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from host_service.packages.ignoring import IGNORE_FILE, IgnoreRules
from host_service.supervisor.compiled import forget_compiled

Stamp = tuple[int, int, int]

#: More are not looked at: a plugin has some dozens, and each look must be short.
FILES_LIMIT = 20_000

# What programs leave beside sources, while they build, and while somebody edits. What is hidden
# never counts: editors, version control and tools put their own things there.
_LEFT_OUT = (
    "node_modules/", "target/", "dist/", "build/", "/bin/", "/out/", "/obj/",
    "*~", "[#]*#", "4913", "*.sw?", "*.tmp", "*.log", "*.pid", "*.sock",
    "*.db", "*.db-*", "*.sqlite", "*.sqlite-*", "*.sqlite3", "*.sqlite3-*",
)  # fmt: skip
# Marks a virtual environment, whatever its folder is called.
_ENVIRONMENT_MARK = "pyvenv.cfg"


class SourceFiles:
    """The files in a plugin's folder that make up the plugin.

    Args:
        folder: The plugin's folder.
        left_out: Patterns of further files that do not count, as in `.rmpkgignore`, whose own
            patterns hold as well.
    """

    def __init__(self, folder: Path, *, left_out: Iterable[str] = ()) -> None:
        self._folder = folder
        self._left_out = tuple(left_out)
        self._rules_stamp: Stamp | None = None
        self._rules = self._read_rules()
        # Matching costs more than looking: each path is judged once.
        self._judged: dict[str, bool] = {}

    def look(self) -> dict[str, Stamp]:
        """What is there now: a stamp for each path, which changes when the file does."""
        self._renew_rules()
        found: dict[str, Stamp] = {}
        for path, stamp in self._walk("", depth=0):
            found[path] = stamp
            if len(found) >= FILES_LIMIT:
                break
        return found

    def forget_compiled(self, paths: Iterable[str]) -> None:
        """Removes what Python has compiled of sources that have changed."""
        forget_compiled(self._folder / path for path in paths)

    def _walk(self, base: str, *, depth: int) -> Iterator[tuple[str, Stamp]]:
        entries = _entries(self._folder / base if base else self._folder)
        if depth and any(entry.name == _ENVIRONMENT_MARK for entry in entries):
            return
        for entry in entries:
            path = f"{base}/{entry.name}" if base else entry.name
            try:
                # A folder that a link leads to may lie above this one.
                is_folder = entry.is_dir(follow_symlinks=False)
                if not self._counts(path, is_folder=is_folder):
                    continue
                if is_folder:
                    yield from self._walk(path, depth=depth + 1)
                    continue
                status = entry.stat()
            except OSError:
                # Gone between the two, or not for us to see.
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, (status.st_mtime_ns, status.st_size, status.st_ino)

    def _counts(self, path: str, *, is_folder: bool) -> bool:
        key = f"{path}/" if is_folder else path
        known = self._judged.get(key)
        if known is None:
            hidden = path.rpartition("/")[2].startswith(".")
            known = not hidden and not self._rules.leaves_out(path, is_folder=is_folder)
            self._judged[key] = known
        return known

    def _renew_rules(self) -> None:
        if _stamp(self._folder / IGNORE_FILE) != self._rules_stamp:
            self._rules = self._read_rules()
            self._judged = {}

    def _read_rules(self) -> IgnoreRules:
        path = self._folder / IGNORE_FILE
        self._rules_stamp = _stamp(path)
        try:
            own = path.read_text("utf-8", errors="replace").splitlines()
        except OSError:
            own = []
        # A package may well have what was built; it is not what somebody edits.
        return IgnoreRules([*own, *_LEFT_OUT, *self._left_out])


def changed_paths(before: Mapping[str, Stamp], after: Mapping[str, Stamp]) -> list[str]:
    """The paths that came, went, or have another content, sorted."""
    paths = before.keys() | after.keys()
    return sorted(path for path in paths if before.get(path) != after.get(path))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        # Removed, or not for us to see.
        return []


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
