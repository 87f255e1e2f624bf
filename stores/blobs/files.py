"""Files and folders as the blob stores make them: private, and safe from a loss of power."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What a path leads through below a root is opened part by part, and not through symbolic links.
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# macOS leaves data in the drive's cache at fsync; this one goes through to the medium.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


@contextmanager
def opened(file: int) -> Iterator[int]:
    """Close a file descriptor in the end."""
    try:
        yield file
    finally:
        os.close(file)


def sync(file: int) -> None:
    """Wait until what was written to an open file, or changed in an open folder, is durable."""
    if _FULL_SYNC is None:
        os.fsync(file)
    else:
        fcntl.fcntl(file, _FULL_SYNC)


def make_private_folder(path: Path) -> None:
    """Make a folder that nobody else may enter, and those above it that are missing."""
    if path.is_dir():
        return
    make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    with opened(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as parent:
        sync(parent)
