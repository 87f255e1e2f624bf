"""Runs the tests that a plugin brings along, in the environment that it runs in."""

import os
import subprocess
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from host_service.packages.errors import OwnTestsFailed

# pytest's exit status, and since Python 3.12 unittest's, when there was no test.
_NONE_FOUND = 5
_HAS_PYTEST = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pytest') is None)"


class RanBy(Enum):
    """What ran a plugin's tests."""

    PYTEST = "pytest"
    UNITTEST = "unittest"
    NOTHING = "nothing"


def run_own_tests(folder: Path, python: Path) -> RanBy:
    """Runs a Python plugin's tests with pytest where its environment has it, else with unittest.

    What they print goes where this process prints.

    Args:
        folder: The plugin.
        python: The interpreter of its environment.

    Returns:
        What ran them; nothing where the plugin has none.

    Raises:
        OwnTestsFailed: One failed.
    """
    if not any(folder.glob("tests/**/test*.py")):
        return RanBy.NOTHING
    search_path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, "PATH": search_path, "PYTHONDONTWRITEBYTECODE": "1"}
    # Where this process was started from has nothing to do with what the plugin can import.
    environment.pop("PYTHONPATH", None)
    has_pytest = _run([str(python), "-c", _HAS_PYTEST], folder, environment) == 0
    runner = RanBy.PYTEST if has_pytest else RanBy.UNITTEST
    words = ["pytest", "-q", "tests"] if has_pytest else ["unittest", "discover", "-s", "tests"]
    sys.stdout.flush()
    status = _run([str(python), "-m", *words], folder, environment)
    if status == _NONE_FOUND:
        return RanBy.NOTHING
    if status != 0:
        raise OwnTestsFailed(
            f"the plugin's own tests failed: {runner.value} ended with {status}",
            "what it says stands above",
        )
    return runner


def _run(words: list[str], folder: Path, environment: Mapping[str, str]) -> int:
    try:
        ran = subprocess.run(
            words, cwd=folder, env=environment, check=False, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise OwnTestsFailed(f"{words[0]} cannot be run: {error.strerror}") from error
    return ran.returncode
