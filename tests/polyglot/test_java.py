"""What the example in Java has alone: its own tests."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from host_service.supervisor.manifest import Command, read_manifest

# Whichever test comes first waits for the build.
pytestmark = pytest.mark.timeout(1200)

_BUILD_SECONDS = 600.0


@pytest.fixture(scope="module")
def plugin(built: Callable[[str], Path]) -> Path:
    """The example's folder, built."""
    return built("java")


def test_its_own_tests_pass(plugin: Path) -> None:
    run = read_manifest(plugin).run
    assert isinstance(run, Command)
    ran = subprocess.run(
        ["/bin/sh", "-c", run.test],
        cwd=plugin,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    reports = [path.read_text() for path in (plugin / "target/surefire-reports").glob("*.txt")]
    assert len(reports) == 2, reports
    assert all("Failures: 0, Errors: 0, Skipped: 0" in report for report in reports), reports
