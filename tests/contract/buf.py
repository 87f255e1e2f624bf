"""The contract as the tests read it: where it lies, and the tool that understands it."""

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "proto/runmesh.v1.binpb"


def run_buf(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[bytes]:
    """Runs buf in a work tree (the project's own when none is given) and returns how it went."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("buf")), *arguments],
        cwd=folder,
        check=False,
        capture_output=True,
    )


def compare_with_image(folder: Path = ROOT) -> subprocess.CompletedProcess[bytes]:
    """Looks for changes that break what was built against the committed image.

    The image holds `runmesh.v1` alone, so nothing else is compared.
    """
    return run_buf("breaking", "--against", str(IMAGE), folder=folder)


def read_contract() -> FileDescriptorSet:
    """Compiles every .proto file of the project, comments included."""
    built = run_buf("build", "--output", "-#format=binpb")
    assert built.returncode == 0, built.stderr.decode()
    return FileDescriptorSet.FromString(built.stdout)
