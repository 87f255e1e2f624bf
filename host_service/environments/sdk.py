"""The wheel of runmesh-sdk that plugins are given: the one that belongs to this host.

An installed host carries it. In a source tree it is built from the sources when it is wanted, and
kept by their digest, so that a changed SDK makes another wheel and thereby other environments.
"""

import asyncio
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from host_service.environments.errors import SdkUnavailable
from host_service.environments.requirements import file_digest

SDK_NAME = "runmesh-sdk"

_WHEEL_PATTERN = "runmesh_sdk-*.whl"
_SOURCES = ("runner_sdk", "proto/gen/python/runmesh/v1", "LICENSE", "dev/wheel_contents.py")
_LEFT_OUT = frozenset({"__pycache__"})


@dataclass(frozen=True, slots=True)
class Sdk:
    """Where the wheel comes from.

    Attributes:
        carried: The folder in which an installed host has it.
        sources: The root of a source tree.
    """

    carried: Path
    sources: Path

    @classmethod
    def of_this_host(cls) -> "Sdk":
        """What belongs to the host that runs."""
        package = Path(__file__).parents[1]
        return cls(carried=package / "shipped_wheels", sources=package.parent)

    def digest(self) -> str:
        """What tells this SDK from another, in hexadecimal. Reads some files, builds nothing.

        Raises:
            SdkUnavailable: There is neither a wheel nor sources.
        """
        wheel = _wheel_in(self.carried)
        if wheel is not None:
            return file_digest(wheel)
        sources = self._source_files()
        seen = hashlib.sha256()
        for path in sources:
            name = str(path.relative_to(self.sources)).encode()
            seen.update(b"%d %s %s\n" % (len(name), name, file_digest(path).encode()))
        return seen.hexdigest()

    async def wheel(self, folder: Path) -> Path:
        """The wheel itself, made in a folder unless it is there.

        Args:
            folder: Where wheels are kept; each SDK has a folder of its own in it, since two may
                have one version.

        Raises:
            SdkUnavailable: There is none, or it cannot be built.
        """
        place = folder / f"sdk-{(await asyncio.to_thread(self.digest))[:16]}"
        kept = _wheel_in(place)
        if kept is not None:
            return kept
        with tempfile.TemporaryDirectory(prefix=".sdk-", dir=folder) as workshop:
            made = Path(workshop) / "made"
            made.mkdir()
            carried = _wheel_in(self.carried)
            if carried is not None:
                shutil.copy(carried, made)
            else:
                await self._build(made)
            try:
                made.rename(place)
            except OSError:
                # Another builder was quicker: its wheel is the same.
                if not place.is_dir():
                    raise
        kept = _wheel_in(place)
        if kept is None:
            raise SdkUnavailable(f"the wheel of {SDK_NAME} was built, and is not there")
        return kept

    async def _build(self, folder: Path) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)),
            cwd=self.sources / "runner_sdk",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        if process.returncode != 0:
            text = printed.decode(errors="replace").strip()
            raise SdkUnavailable(f"the wheel of {SDK_NAME} could not be built: {text}")

    def _source_files(self) -> Sequence[Path]:
        if not (self.sources / "runner_sdk" / "pyproject.toml").is_file():
            raise SdkUnavailable(
                f"this installation carries no wheel of {SDK_NAME}: install runmesh from its wheel"
            )
        return sorted(file for name in _SOURCES for file in _files(self.sources / name))


def _wheel_in(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob(_WHEEL_PATTERN))), None)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        for entry in path.iterdir():
            if entry.name not in _LEFT_OUT and not entry.name.startswith("."):
                yield from _files(entry)
