"""Plugin folders that tests put in front of a host."""

import sys
from pathlib import Path

import yaml

SCRIPTED = Path(__file__).parent / "runners" / "scripted.py"


def write_plugin(folder: Path, plugin_id: str, command: list[str]) -> Path:
    """Makes a plugin folder whose process is a command; returns it."""
    author, _, name = plugin_id.partition("/")
    place = folder / name
    place.mkdir(parents=True)
    manifest = {
        "apiVersion": "runmesh/v1",
        "kind": "Plugin",
        "metadata": {"author": author, "name": name, "version": "1.0.0", "label": {"en_US": name}},
        "run": {"command": command},
    }
    # Under its name only when it is whole: the host looks at the folder whenever it likes.
    whole = place / "manifest.new"
    whole.write_text(yaml.safe_dump(manifest))
    whole.rename(place / "manifest.yaml")
    return place


def write_scripted_plugin(folder: Path, plugin_id: str = "acme/scripted") -> Path:
    """Makes a plugin folder of the runner that does what the event says."""
    return write_plugin(folder, plugin_id, [sys.executable, str(SCRIPTED)])


def write_shell_plugin(folder: Path, plugin_id: str, script: str) -> Path:
    """Makes a plugin folder whose process is a shell with a script."""
    return write_plugin(folder, plugin_id, ["/bin/sh", "-c", script])
