"""Plugin folders that tests put in front of a host."""

import sys
from pathlib import Path

import yaml

SCRIPTED = Path(__file__).parent / "runners" / "scripted.py"
DESK = Path(__file__).parent / "runners" / "desk.py"


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


def write_desk_plugin(folder: Path, note: Path, *, name: str = "desk", max_runs: int = 0) -> Path:
    """Makes a plugin folder of the runners that tests of sessions use; see runners/desk.py."""
    capabilities = {
        "stateful": {"stateful_session": True, "interrupt": True},
        "steered": {"steering": True, "interrupt": True},
        "plain": {},
    }
    place = folder / f".{name}"
    place.mkdir(parents=True)
    for component, able in capabilities.items():
        declared = {
            "apiVersion": "runmesh/v1",
            "kind": "AgentRunner",
            "metadata": {"name": component, "label": {"en_US": component}},
            "capabilities": {"streaming": True, **able},
        }
        (place / f"{component}.yaml").write_text(yaml.safe_dump(declared))
    manifest = {
        "apiVersion": "runmesh/v1",
        "kind": "Plugin",
        "metadata": {"author": "acme", "name": name, "version": "1.0.0", "label": {"en_US": name}},
        "run": {"command": [sys.executable, str(DESK), str(note), str(max_runs)]},
        "components": [f"{component}.yaml" for component in capabilities],
    }
    (place / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    # Under its name only when it is whole: the host looks at the folder whenever it likes.
    return place.rename(folder / name)
