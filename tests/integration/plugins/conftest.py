"""What the tests of plugins share."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.plugins.mesh import Mesh


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder for plugin folders."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    return folder


@pytest.fixture
async def make_mesh(base: Path, tmp_path: Path) -> AsyncIterator[Callable[..., Mesh]]:
    """Makes a registry and a supervisor over `base`, and ends them after the test."""
    made: list[Mesh] = []

    def make(**options: Any) -> Mesh:
        made.append(Mesh(base, tmp_path / "runtime", **options))
        return made[-1]

    yield make
    for mesh in made:
        await mesh.close()
