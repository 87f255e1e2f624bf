"""The commands of docs/grpcurl.md work as they stand there, and answer what is shown below them."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.commands import RUNMESH
from tests.acceptance.grpcurl import Grpcurl
from tests.integration.host.host_process import HostProcess

_ROOT = Path(__file__).parents[2]
_GUIDE = (_ROOT / "docs" / "grpcurl.md").read_text("utf-8")
_BLOCK = re.compile(r"^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_MARK = "=== the next block ==="


@pytest.mark.timeout(600)
def test_every_command_of_the_guide_answers_as_it_says(
    plain_host: HostProcess, grpcurl: Grpcurl, tmp_path: Path
) -> None:
    blocks = _BLOCK.findall(_GUIDE)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "grpcurl").symlink_to(grpcurl.path)
    told = _run([commands for commands, _ in blocks], plain_host, tools).split(_MARK)
    assert len(told) == len(blocks) + 1
    for (commands, shown), answer in zip(blocks, told, strict=False):
        for line in shown.splitlines():
            assert line.strip().rstrip(",") in answer, f"{commands}\n{answer}"


def _run(blocks: list[str], host: HostProcess, tools: Path) -> str:
    """Runs blocks of commands in one shell; returns what they print, with a mark behind each."""
    script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n" + "".join(
        f"{commands}echo '{_MARK}'\n" for commands in blocks
    )
    first = "HOST=localhost:50051"
    assert script.count(first) == 1
    address = host.addresses["grpc"].replace("127.0.0.1", "localhost")
    ran = subprocess.run(
        ["bash", "-c", script.replace(first, f"HOST={address}")],
        cwd=_ROOT,
        env={
            **os.environ,
            "PATH": os.pathsep.join([str(tools), str(RUNMESH.parent), os.environ["PATH"]]),
            "RUNMESH_DATA": str(host.data),
        },
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout
