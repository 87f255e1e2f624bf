"""Where unix sockets are: a private folder whose path is short enough.

The path of a unix socket is limited to 107 bytes on Linux, less elsewhere, and folders for
temporary files may have longer ones. So the folder is chosen by length, not taken as given.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from host_service.registry.address import SOCKET_PATH_LIMIT_BYTES, is_plain_socket_path
from host_service.supervisor.errors import SocketPathTooLong

_PREFIX = "runmesh-"
_LOCK = "lock"
# The longest name of a socket in the folder.
_NAME_BYTES = len("999999.sock")
_LIMIT_BYTES = SOCKET_PATH_LIMIT_BYTES if sys.platform == "linux" else 103


class SocketFolder:
    """A folder of this process, mode 0700, for unix sockets; removed by `close`.

    A host that was killed leaves its folder behind. The next one removes it: the lock in it is held
    only while its host lives.

    Args:
        path: The folder.
        lock: A descriptor that holds the lock in it.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._made = 0

    @classmethod
    def create(cls, base: Path | None = None, environment: Mapping[str, str] = os.environ) -> Self:
        """Makes a new folder.

        Args:
            base: Where; None: `XDG_RUNTIME_DIR`, `TMPDIR` or `/tmp`, the first that is short
                enough.
            environment: Where those are looked up.

        Raises:
            SocketPathTooLong: Nothing is short enough.
        """
        candidates = [base] if base is not None else list(_bases(environment))
        for candidate in candidates:
            if _fits(candidate / f"{_PREFIX}12345678" / ("x" * _NAME_BYTES)):
                _sweep(candidate)
                path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=candidate))
                return cls(path, _take_lock(path))
        shortest = min(candidates, key=lambda each: len(os.fsencode(each)))
        path = shortest / f"{_PREFIX}12345678" / ("x" * _NAME_BYTES)
        raise SocketPathTooLong(path, size_bytes=len(os.fsencode(path)), limit_bytes=_LIMIT_BYTES)

    def new_path(self) -> Path:
        """A path in it at which nothing was before."""
        self._made += 1
        return self.path / f"{self._made}.sock"

    def close(self) -> None:
        """Removes the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _bases(environment: Mapping[str, str]) -> Iterator[Path]:
    for name in ("XDG_RUNTIME_DIR", "TMPDIR"):
        chosen = environment.get(name, "")
        if chosen.startswith("/") and os.access(chosen, os.W_OK | os.X_OK):
            yield Path(chosen)
    yield Path("/tmp")  # noqa: S108 - a folder of mode 0700 with a random name is made in it


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= _LIMIT_BYTES and is_plain_socket_path(str(path))


def _take_lock(folder: Path) -> int:
    # Under its name only once it is held: a lock without a holder means that the folder is left
    # over.
    unnamed = folder / f"{_LOCK}.new"
    lock = os.open(unnamed, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unnamed.rename(folder / _LOCK)
    return lock


def _is_ours(path: Path) -> bool:
    status = path.lstat()
    return status.st_uid == os.getuid() and not stat.S_ISLNK(status.st_mode)


def _sweep(base: Path) -> None:
    """Removes the folders of hosts that are gone."""
    for lock_path in base.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError):
            # In a folder for everybody, others may have put links under such names.
            if not _is_ours(lock_path) or not _is_ours(lock_path.parent):
                continue
            lock = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock_path.parent, ignore_errors=True)
            finally:
                os.close(lock)
