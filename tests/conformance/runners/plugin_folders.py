"""Folders of plugins that tests write."""

import json
import sys
from pathlib import Path

RAW_RUNNER = Path(__file__).with_name("raw_runner.py")


def raw_plugin(folder: Path, fault: str = "") -> Path:
    """Writes the folder of a plugin that is the raw runner, with a fault."""
    return write_plugin(folder, [sys.executable, "-u", str(RAW_RUNNER), fault], name="raw")


def write_plugin(folder: Path, command: list[str], *, name: str) -> Path:
    """Writes the folder of `acme/NAME`."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "apiVersion": "runmesh/v1",
        "kind": "Plugin",
        "metadata": {"author": "acme", "name": name, "version": "1.0.0"},
        "run": {"command": command},
    }
    (folder / "manifest.yaml").write_text(json.dumps(manifest), "utf-8")
    return folder
