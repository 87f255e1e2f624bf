"""The commands of docs/plugins.md work as they stand there, one after the other."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from host_service.limits import MIB, PackageLimits
from tests.acceptance.commands import RUNMESH

GUIDE = Path(__file__).parents[2] / "docs" / "plugins.md"

# However the commands end, the host that they started must not outlive them.
_PROLOGUE = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n"
_WAIT = 'until [ -f "$RUNMESH_DATA/host.json" ]; do sleep 0.05; done\n'


def commands() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(180)
def test_every_command_of_the_guide_works(tmp_path: Path) -> None:
    first, *others = commands()
    script = "\n".join([_PROLOGUE, first, _WAIT, *others])
    search_path = f"{RUNMESH.parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": search_path},
        check=False,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    told = ran.stdout.splitlines()
    assert [line for line in told if line.startswith(("You said", "Heard"))] == [
        "You said: hello",
        "Heard: hello",
    ]
    assert told[-1] == "acme/weather 0.2.0 is installed, signed by acme, and serves"
    assert (tmp_path / "weather" / "weather-0.2.0.rmpkg").exists()


def test_limits_of_the_guide_are_those_of_the_code() -> None:
    told = " ".join(GUIDE.read_text("utf-8").split())
    limits = PackageLimits()
    for said in (
        f"at most {limits.package_bytes // MIB} MiB, {limits.entries:,} files",
        f"{limits.unpacked_bytes // MIB // 1024} GiB of them",
        f"more than {limits.expansion_from_bytes // MIB} MiB may be at most",
        f"{limits.expansion} times as large",
        f"at most {limits.path_bytes} bytes and {limits.path_depth} names",
    ):
        assert said in told
