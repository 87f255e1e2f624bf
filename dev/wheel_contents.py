"""Build hook of both wheels: adds what lies outside the packages' own folders.

A forced inclusion in pyproject.toml would also be copied into editable installs, where the copies
would hide the sources; a hook can tell the two apart.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.wheel import WheelBuilder, WheelBuilderConfig

_LEFT_OUT = {"__pycache__", "dist", "node_modules"}


class WheelContents(BuildHookInterface[WheelBuilderConfig]):
    """Adds what `copy` names, and the wheels of the projects that `carry` names.

    Both are tables in the hook's section of pyproject.toml: from a file or folder, relative to
    that pyproject.toml, to its place in the wheel.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds files to a wheel that will be shipped; leaves an editable one alone."""
        if version != "standard":
            return
        root = Path(self.root).resolve()
        included: dict[str, str] = build_data["force_include"]
        for source, place in self.config.get("copy", {}).items():
            origin = (root / source).resolve()
            for file in _files(origin):
                # What describes the project is not part of it.
                if file != root / "pyproject.toml":
                    included[str(file)] = (Path(place) / file.relative_to(origin)).as_posix()
        for project, place in self.config.get("carry", {}).items():
            for wheel in self._build_wheels(root / project):
                included[str(wheel)] = f"{place}/{wheel.name}"

    def finalize(self, *_: object) -> None:
        """Removes the carried wheels: they are in the archive now."""
        if hasattr(self, "_workshop"):
            self._workshop.cleanup()

    def _build_wheels(self, project: Path) -> Iterator[Path]:
        self._workshop = tempfile.TemporaryDirectory(prefix="runmesh-wheel-")
        builder = WheelBuilder(str(project))
        for artifact in builder.build(directory=self._workshop.name, versions=["standard"]):
            yield Path(artifact)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise FileNotFoundError(f"{path} belongs in the wheel and does not exist")
    for entry in sorted(path.iterdir()):
        if entry.name not in _LEFT_OUT and not entry.name.startswith("."):
            yield from _files(entry)
