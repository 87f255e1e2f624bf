"""Programs of other languages that some tests need: absent on a laptop perhaps, never in CI."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest


def require_tool(name: str) -> Path:
    """Finds a program on PATH, such as `go` or `node`.

    Skips the test, and says why, where the program is missing; fails it instead when the
    environment says `CI=true`, so that no machine that judges the project tests less unnoticed.
    """
    found = shutil.which(name)
    if not found:
        unavailable(f"needs {name}, which is not on PATH")
    return Path(found)


def unavailable(reason: str) -> NoReturn:
    """Skips the test for want of a tool; in CI fails it."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"{reason}: in CI every toolchain must be there", pytrace=False)
    pytest.skip(reason)
