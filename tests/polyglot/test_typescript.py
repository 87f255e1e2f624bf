"""What the example in TypeScript has alone: its own tests, and its lock."""

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.polyglot.examples import EXAMPLES, ROOT

# Whichever comes first waits until the example is built.
pytestmark = pytest.mark.timeout(600)

_SDK = ROOT / "sdk" / "typescript"


@pytest.fixture(scope="module")
def plugin(built: Callable[[str], Path]) -> Path:
    """The example's folder, built."""
    return built("typescript")


@pytest.mark.parametrize("folder", [_SDK, EXAMPLES / "typescript"], ids=["sdk", "example"])
def test_own_tests_pass(folder: Path, plugin: Path) -> None:
    # The example's build compiled both, with tsc's strict checks.
    tests = sorted(folder.glob("dist/**/*.test.js"))
    assert tests
    ran = _ran(["node", "--test", "--test-timeout=60000", *map(str, tests)], folder)
    assert re.search(r"^# pass [1-9]", ran, re.MULTILINE), ran


@pytest.mark.parametrize("folder", [_SDK, EXAMPLES / "typescript"], ids=["sdk", "example"])
def test_locked_versions_are_exact_and_name_no_registry(folder: Path) -> None:
    lock = (folder / "package-lock.json").read_text("utf-8")
    assert "://" not in re.sub(r'"(url|funding)": "[^"]*"', "", lock)
    assert '"integrity": "sha512-' in lock
    package = (folder / "package.json").read_text("utf-8")
    assert not re.search(r'": "[~^>*]', package.partition('"dependencies"')[2])


def _ran(command: Sequence[str], folder: Path) -> str:
    ran = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
