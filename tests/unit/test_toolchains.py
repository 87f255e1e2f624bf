"""Behaviour of the rule that missing toolchains are skipped by people and failed by CI."""

import sys
from pathlib import Path

import pytest

from tests.toolchains import require_tool


def test_tool_on_path_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    python = Path(sys.executable)
    monkeypatch.setenv("PATH", str(python.parent))
    assert require_tool(python.name) == python


def test_missing_tool_skips_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs no-such-tool"):
        require_tool("no-such-tool")


def test_missing_tool_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs no-such-tool"):
        require_tool("no-such-tool")
