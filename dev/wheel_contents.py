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

_LEFT_OUT = {"__pycache__", "node_modules"}


class WheelContents(BuildHookInterface[WheelBuilderConfig]):
    """Adds the folders of `copy` and the wheels of the projects of `carry`, to the places they name.

    Both are tables of the hook's section in pyproject.toml, from a path relative to it to a path
    in the wheel.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds files to a wheel that will be shipped; leaves an editable one alone."""
        if version != "standard":
            return
        root = Path(self.root)
        included: dict[str, str] = build_data["force_include"]
        for source, place in self.config.get("copy", {}).items():
            for file in _files(root / source):
                included[str(file)] = f"{place}/{file.relative_to(root / source).as_posix()}"
        for project, place in self.config.get("carry", {}).items():
            for wheel in self._build_wheels(root / project):
                included[str(wheel)] = f"{place}/{wheel.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes the carried wheels: they are in the archive now."""
        if hasattr(self, "_workshop"):
            self._workshop.cleanup()

    def _build_wheels(self, project: Path) -> Iterator[Path]:
        self._workshop = tempfile.TemporaryDirectory(prefix="runmesh-wheel-")
        builder = WheelBuilder(str(project))
        for artifact in builder.build(directory=self._workshop.name, versions=["standard"]):
            yield Path(artifact)


def _files(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} belongs in the wheel and does not exist")
    for path in sorted(folder.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path
