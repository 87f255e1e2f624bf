"""What the example in Python has alone: its own tests, and its types."""

import os
import subprocess
import sys

import pytest

from tests.polyglot.examples import EXAMPLES, ROOT


@pytest.mark.timeout(180)
def test_its_own_tests_pass() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=EXAMPLES / "python",
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout


@pytest.mark.timeout(180)
def test_it_is_typed_strictly() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *map(str, sorted((EXAMPLES / "python").rglob("*.py")))],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(EXAMPLES / "python")},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
