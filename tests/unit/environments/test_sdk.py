"""The SDK's wheel: carried by an installed host, built from the sources of a source tree."""

from pathlib import Path

import pytest

from host_service.environments import SdkUnavailable
from host_service.environments.sdk import Sdk

ROOT = Path(__file__).parents[3]


def source_tree(base: Path) -> Sdk:
    (base / "runner_sdk").mkdir(parents=True)
    (base / "runner_sdk" / "pyproject.toml").write_text("[project]\n")
    (base / "runner_sdk" / "__init__.py").write_text("version = 1\n")
    return Sdk(carried=base / "none", sources=base)


async def test_installed_host_gives_the_wheel_that_it_carries(tmp_path: Path) -> None:
    carried = tmp_path / "carried"
    carried.mkdir()
    (carried / "runmesh_sdk-0.1.0-py3-none-any.whl").write_bytes(b"the wheel")
    sdk = Sdk(carried=carried, sources=ROOT)
    wheel = await sdk.wheel(tmp_path)
    assert wheel.name == "runmesh_sdk-0.1.0-py3-none-any.whl"
    assert wheel.read_bytes() == b"the wheel"
    assert await sdk.wheel(tmp_path) == wheel
    # One of the same version and another content has another place.
    (carried / wheel.name).write_bytes(b"another")
    assert (await sdk.wheel(tmp_path)).read_bytes() == b"another"
    assert wheel.read_bytes() == b"the wheel"


def test_digest_of_a_source_tree_follows_its_sources(tmp_path: Path) -> None:
    sdk = source_tree(tmp_path)
    before = sdk.digest()
    assert sdk.digest() == before
    (tmp_path / "runner_sdk" / "__pycache__").mkdir()
    (tmp_path / "runner_sdk" / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert sdk.digest() == before
    (tmp_path / "runner_sdk" / "__init__.py").write_text("version = 2\n")
    changed = sdk.digest()
    assert changed != before
    (tmp_path / "runner_sdk" / "__init__.py").rename(tmp_path / "runner_sdk" / "other.py")
    assert sdk.digest() != changed


async def test_host_without_sdk_says_so(tmp_path: Path) -> None:
    sdk = Sdk(carried=tmp_path / "none", sources=tmp_path)
    with pytest.raises(SdkUnavailable, match="install runmesh from its wheel"):
        sdk.digest()


async def test_sources_that_cannot_be_built_are_told(tmp_path: Path) -> None:
    sdk = source_tree(tmp_path / "tree")
    kept = tmp_path / "kept"
    kept.mkdir()
    with pytest.raises(SdkUnavailable, match=r"could not be built: .+"):
        await sdk.wheel(kept)
    assert list(kept.iterdir()) == []
