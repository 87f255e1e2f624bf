"""What Python has compiled of sources that have changed since.

It takes compiled code to be that of a source with the same size and the same second: of a line that
is edited twice in a second, the second edit would be lost. Its functions block on the file system.
"""

import contextlib
import glob
from collections.abc import Iterable, Iterator
from pathlib import Path


def forget_compiled(sources: Iterable[Path]) -> None:
    """Removes what was compiled of sources, of those that are Python's."""
    for source in sources:
        for compiled in _compiled(source):
            _remove(compiled)


def forget_outdated(sources: Iterable[Path]) -> None:
    """Removes what was compiled of sources before they were written last."""
    for source in sources:
        with contextlib.suppress(OSError):
            written = source.stat().st_mtime_ns
            for compiled in _compiled(source):
                if compiled.stat().st_mtime_ns <= written:
                    _remove(compiled)


def _compiled(source: Path) -> Iterator[Path]:
    if source.suffix == ".py":
        yield from source.parent.glob(f"__pycache__/{glob.escape(source.stem)}.*.pyc")


def _remove(compiled: Path) -> None:
    with contextlib.suppress(OSError):
        # Gone already, or somebody else's: then it is not of this second.
        compiled.unlink()
