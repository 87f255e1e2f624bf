"""The environments of a data folder: found by what they hold, used, and collected.

environments/
    KEY/                  an environment, whole: it came here by a rename, and never changes
        environment.json  what it holds
        lock              held, shared, by whoever runs a plugin in it
    .build-*/             one in the making, or left by a builder that was killed
    .removing-*/          one that is being removed
    wheels/               wheels that builds without a network use
    lock                  held, shared, by whoever builds
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from host_service.environments.requirements import Requirements, RequirementsReader
from host_service.environments.sdk import Sdk

FOLDER_NAME = "environments"
BUILD_PREFIX = ".build-"
WHEELS_NAME = "wheels"
DESCRIPTION_NAME = "environment.json"

_REMOVING_PREFIX = ".removing-"
_LOCK_NAME = "lock"
_KEY = re.compile(r"[0-9a-f]{32}")
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Environment:
    """What a Python plugin runs in.

    Attributes:
        python: Its interpreter.
        folder: Where it is; None: it is the host's own, for a plugin that asks for nothing.
        key: What it is addressed by; empty for the host's own.
    """

    python: Path
    folder: Path | None = None
    key: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether it is there, and its interpreter is too."""
        if self.folder is None:
            return True
        return (self.folder / DESCRIPTION_NAME).is_file() and os.access(self.python, os.X_OK)


HOSTS_OWN = Environment(Path(sys.executable))


@dataclass(frozen=True, slots=True)
class KeptEnvironment:
    """An environment that is kept.

    Attributes:
        environment: The environment.
        requirements: What it was built for, one text a line.
        size_bytes: What its files have; what it shares with others counts in each.
        used_at: When a plugin was last started in it, or it was built; seconds since the epoch.
        in_use: Whether a plugin runs in it now.
    """

    environment: Environment
    requirements: tuple[str, ...]
    size_bytes: int
    used_at: float
    in_use: bool


class Lease:
    """Keeps an environment from being collected, until it is released or this process ends."""

    def __init__(self, environment: Environment, lock: int | None) -> None:
        self.environment = environment
        self._lock = lock

    def release(self) -> None:
        """Lets it go; may be called twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class EnvironmentShelf:
    """The environments of a data folder.

    Its methods block on the file system: they are called in a thread.

    Args:
        data_folder: The data folder. Nothing is made in it before something is built.
        sdk: The SDK that environments are built with.
    """

    def __init__(self, data_folder: Path, *, sdk: Sdk | None = None) -> None:
        self.folder = data_folder.absolute() / FOLDER_NAME
        self.wheels = self.folder / WHEELS_NAME
        self.sdk = sdk or Sdk.of_this_host()
        self._reader = RequirementsReader()

    def read(self, plugin_folder: Path) -> Requirements:
        """What a plugin asks for.

        Raises:
            RequirementsInvalid: It asks for what cannot be given.
        """
        return self._reader.read(plugin_folder)

    def find(self, requirements: Requirements) -> Environment:
        """The environment for what a plugin asks for, whether it is there or not.

        Raises:
            SdkUnavailable: This installation has no SDK.
        """
        if not requirements:
            return HOSTS_OWN
        key = self._key(requirements)
        folder = self.folder / key
        return Environment(folder / "bin" / "python", folder, key)

    def take(self, environment: Environment) -> Lease | None:
        """Keeps an environment from being collected; None when it is not there.

        A lock, and not a note of who uses it: the lock ends with the process that holds it.
        """
        if environment.folder is None:
            return Lease(environment, None)
        while environment.is_ready:
            flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC
            try:
                lock = os.open(environment.folder / _LOCK_NAME, flags, 0o600)
            except FileNotFoundError:
                continue
            fcntl.flock(lock, fcntl.LOCK_SH)
            if _is_named(lock, environment.folder / _LOCK_NAME):
                with contextlib.suppress(OSError):
                    # When it was last used; where that cannot be written it only looks older.
                    os.utime(lock)
                return Lease(environment, lock)
            # It was removed between the two; another may have come to its place.
            os.close(lock)
        return None

    @contextlib.contextmanager
    def workshop(self) -> Iterator[Path]:
        """A new folder in which an environment can be made; removed at the end.

        What killed builders left is removed first, unless somebody else builds at the moment.
        """
        self.wheels.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        with self._building() as lock:
            if _take(lock, fcntl.LOCK_EX):
                self._sweep(BUILD_PREFIX)
                self._sweep(_REMOVING_PREFIX)
            fcntl.flock(lock, fcntl.LOCK_SH)
            folder = Path(tempfile.mkdtemp(prefix=BUILD_PREFIX, dir=self.folder))
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def put(self, made: Path, environment: Environment) -> None:
        """Gives a whole environment its place; when another was quicker, that one stays."""
        if environment.folder is None:
            return
        (made / _LOCK_NAME).touch(0o600)
        if environment.folder.is_dir() and not environment.is_ready:
            # Its Python is gone, such as one of a system that was renewed: nobody can run in it.
            self._set_aside(environment.folder)
        try:
            made.rename(environment.folder)
        except OSError:
            if not environment.is_ready:
                raise

    def kept(self) -> list[KeptEnvironment]:
        """Every environment that is there, the one used longest ago first."""
        found = [self._look_at(folder) for folder in self._folders()]
        return sorted((each for each in found if each is not None), key=lambda each: each.used_at)

    def collect(
        self, needed: Collection[str] = (), *, unused_seconds: float = 0.0
    ) -> list[KeptEnvironment]:
        """Removes environments that nobody needs.

        Args:
            needed: Keys of those to keep: of the plugins that are there.
            unused_seconds: Keep what was used within this time.

        Returns:
            What was removed. What a plugin runs in stays, whether it is needed or not.
        """
        removed = []
        for each in self.kept():
            folder = each.environment.folder
            is_young = time.time() - each.used_at < unused_seconds
            if folder is None or is_young or each.environment.key in needed:
                continue
            with contextlib.suppress(FileNotFoundError), _opened(folder / _LOCK_NAME) as lock:
                if _take(lock, fcntl.LOCK_EX):
                    # Removed when the lock is let go: who waits for it shall not wait for that.
                    self._set_aside(folder)
                    removed.append(each)
        if self.folder.is_dir():
            self._sweep(_REMOVING_PREFIX)
            with self._building() as lock:
                if _take(lock, fcntl.LOCK_EX):
                    self._sweep(BUILD_PREFIX)
        return removed

    def remove_wheels(self) -> int:
        """Removes the wheels that were kept, unless somebody builds; returns how many bytes."""
        if not self.wheels.is_dir():
            return 0
        with self._building() as lock:
            if not _take(lock, fcntl.LOCK_EX):
                return 0
            size = tree_bytes(self.wheels)
            shutil.rmtree(self.wheels)
            return size

    def _key(self, requirements: Requirements) -> str:
        what = {
            "format": _FORMAT,
            "python": sys.implementation.cache_tag,
            "platform": sysconfig.get_platform(),
            # Looked at each time: in a source tree the SDK changes under a host that runs.
            "sdk": self.sdk.digest(),
            "requirements": requirements.lines,
            "constraints": requirements.constraints,
            "wheels": requirements.digests,
        }
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]

    def _folders(self) -> list[Path]:
        try:
            names = os.listdir(self.folder)  # noqa: PTH208 - names are all that is needed
        except FileNotFoundError:
            return []
        return [self.folder / name for name in names if _KEY.fullmatch(name)]

    def _look_at(self, folder: Path) -> KeptEnvironment | None:
        try:
            used_at = (folder / _LOCK_NAME).stat().st_mtime
            description = json.loads((folder / DESCRIPTION_NAME).read_text("utf-8"))
            with _opened(folder / _LOCK_NAME) as lock:
                in_use = not _take(lock, fcntl.LOCK_EX)
        except (OSError, ValueError):
            # Removed meanwhile.
            return None
        return KeptEnvironment(
            environment=Environment(folder / "bin" / "python", folder, folder.name),
            requirements=tuple(description.get("requirements", ())),
            size_bytes=tree_bytes(folder),
            used_at=used_at,
            in_use=in_use,
        )

    def _set_aside(self, folder: Path) -> None:
        aside = self.folder / f"{_REMOVING_PREFIX}{folder.name}-{os.getpid()}-{time.time_ns()}"
        with contextlib.suppress(FileNotFoundError):
            folder.rename(aside)

    def _sweep(self, prefix: str) -> None:
        for left in self.folder.glob(f"{prefix}*"):
            shutil.rmtree(left, ignore_errors=True)

    @contextlib.contextmanager
    def _building(self) -> Iterator[int]:
        with _opened(self.folder / _LOCK_NAME, os.O_CREAT) as lock:
            yield lock


def tree_bytes(folder: Path) -> int:
    """What the files in a folder have together."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                # It may go while we look.
                total += Path(base, name).lstat().st_size
    return total


@contextlib.contextmanager
def _opened(path: Path, flags: int = 0) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _take(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        there, held = path.stat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)
