"""The example in Python: its own tests, its types, the kit, and its client."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.polyglot.examples import EXAMPLES, ROOT
from tests.polyglot.mesh import running_mesh


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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["desk", "echo"])
def test_it_passes_the_conformance_kit(name: str) -> None:
    runner = f"plugin:examples/python/{name}"
    words = ["conformance", "--plugin", str(EXAMPLES / "python"), "--runner", runner]
    ran = run(sys.executable, "-m", "host_service", *words)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " 0 failed" in ran.stdout


@pytest.mark.timeout(300)
def test_its_client_shows_what_a_run_says(tmp_path: Path) -> None:
    with running_mesh(tmp_path, ["python"]) as mesh:
        address, key = mesh.host.addresses["grpc"], mesh.host.key
        client = str(EXAMPLES / "python" / "client.py")
        ran = run(
            sys.executable, client, address, "python-echo", "hello, 你好", RUNMESH_API_KEY=key
        )
    said, ended = ran.stdout.splitlines()
    assert said == "hello, 你好"
    assert ended.endswith(" RUN_STATUS_COMPLETED")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )
