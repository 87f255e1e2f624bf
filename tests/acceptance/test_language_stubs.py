"""The contract's code in other languages, by the generators of their own registries."""

import subprocess
from pathlib import Path

import pytest

from tests.toolchains import require_tool

_ROOT = Path(__file__).parents[2]

# By language: what its generators need, and files with a word of each.
_LANGUAGES = {
    "go": (
        ["go"],
        {
            "runmesh/v1/result.pb.go": "type RunResult struct",
            "runmesh/v1/run_grpc.pb.go": "RunServiceServer",
        },
    ),
    "typescript": (["npm"], {"runmesh/v1/run_pb.ts": "RunService: GenService"}),
    "java": (
        ["mvn"],
        {
            "dev/runmesh/v1/RunResult.java": "class RunResult",
            "dev/runmesh/v1/RunServiceGrpc.java": "class RunServiceImplBase",
        },
    ),
    "rust": (
        ["cargo"],
        {
            "runmesh/v1/runmesh.v1.rs": "pub struct RunResult",
            "runmesh/v1/runmesh.v1.tonic.rs": "trait RunService",
        },
    ),
    "cpp": (
        ["mvn", "grpc_cpp_plugin"],
        {"runmesh/v1/result.pb.h": "class RunResult", "runmesh/v1/run.grpc.pb.h": "RunService"},
    ),
    "csharp": (["mvn"], {"Runmesh/V1/Result.cs": "class RunResult"}),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("language", _LANGUAGES)
def test_contract_is_generated_in_each_language(language: str, tmp_path: Path) -> None:
    tools, expected = _LANGUAGES[language]
    for tool in tools:
        require_tool(tool)
    made = _make_stubs(language, tmp_path)
    assert made.returncode == 0, made.stderr
    for name, words in expected.items():
        assert words in (tmp_path / name).read_text("utf-8"), name


def test_language_without_stubs_is_told_those_that_have_some(tmp_path: Path) -> None:
    refused = _make_stubs("cobol", tmp_path)
    assert refused.returncode != 0
    assert "'cobol'" in refused.stderr
    assert "go, typescript, java, rust, cpp, csharp" in refused.stderr
    assert not any(tmp_path.iterdir())


def _make_stubs(language: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--silent", "stubs", f"LANG={language}", f"OUT={folder}"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
