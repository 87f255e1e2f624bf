"""What the example in Rust has alone: its addresses, and its own tools."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.polyglot.examples import EXAMPLES
from tests.toolchains import require_tool

# Whichever comes first waits until the example is built.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def plugin(built: Callable[[str], Path]) -> Path:
    """The example's folder, built."""
    return built("rust")


def test_other_machines_are_not_listened_to(plugin: Path) -> None:
    ran = subprocess.run(
        [plugin / "bin" / "plugin"],
        env={"RUNMESH_LISTEN": "0.0.0.0:0"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 1
    assert "can be reached from other machines" in ran.stderr


@pytest.mark.parametrize(
    "command",
    [
        "cargo fmt --check",
        "cargo clippy --release --all-targets -- --deny warnings",
        "cargo test --release",
    ],
)
def test_own_tests_and_checks_pass(plugin: Path, command: str) -> None:
    require_tool("cargo")
    ran = subprocess.run(
        command.split(),
        cwd=EXAMPLES / "rust",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
