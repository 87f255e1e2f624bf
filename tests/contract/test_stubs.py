"""The committed Python code is what the contract generates, byte for byte, and works as it is."""

import importlib
import subprocess
from pathlib import Path

import pytest

from tests.contract.buf import ROOT
from tests.toolchains import require_tool

GENERATED = ROOT / "proto/gen/python"


def _generated_files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="session")
def fresh_stubs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The Python code that the contract generates now, by path."""
    folder = tmp_path_factory.mktemp("stubs")
    made = subprocess.run(
        [str(ROOT / "dev/stubs.sh"), str(folder)], check=False, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return _generated_files(folder / "proto/gen/python")


def test_committed_stubs_are_what_the_contract_generates(fresh_stubs: dict[str, bytes]) -> None:
    committed = _generated_files(GENERATED)
    differing = sorted(
        name
        for name in fresh_stubs.keys() | committed.keys()
        if fresh_stubs.get(name) != committed.get(name)
    )
    assert differing == [], "make stubs brings them up to date"


def test_every_contract_file_has_importable_stubs_with_types(
    fresh_stubs: dict[str, bytes],
) -> None:
    files = [path.relative_to(ROOT / "proto") for path in (ROOT / "proto").rglob("*.proto")]
    assert files
    for file in files:
        for kind in ("_pb2", "_pb2_grpc"):
            stub = file.with_name(f"{file.stem}{kind}.py")
            assert stub.as_posix() in fresh_stubs
            assert stub.with_suffix(".pyi").as_posix() in fresh_stubs
            importlib.import_module(".".join(stub.with_suffix("").parts))


def test_namespace_has_no_package_file_that_would_hide_the_other_distribution(
    fresh_stubs: dict[str, bytes],
) -> None:
    assert "runmesh/__init__.py" not in fresh_stubs
    assert "runmesh/v1/py.typed" in fresh_stubs
    assert "runmesh/admin/v1/py.typed" in fresh_stubs


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("language", "tool", "place"),
    [("go", "go", "sdk/go/gen"), ("typescript", "npm", "sdk/typescript/src/gen")],
)
def test_committed_code_of_an_sdk_is_what_the_contract_generates(
    language: str, tool: str, place: str, tmp_path: Path
) -> None:
    require_tool(tool)
    command = ["make", "--silent", "stubs", f"LANG={language}", "ONLY=proto/runmesh/v1"]
    made = subprocess.run(
        [*command, f"OUT={tmp_path}"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    fresh, committed = _generated_files(tmp_path), _generated_files(ROOT / place)
    assert fresh
    differing = sorted(
        name for name in fresh.keys() | committed.keys() if fresh.get(name) != committed.get(name)
    )
    assert differing == [], f"{' '.join(command)} OUT={place} brings them up to date"
