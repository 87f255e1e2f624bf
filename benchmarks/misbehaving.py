"""Plugins that do what plugins do at their worst, and some that do well beside them."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from host_service.settings import shipped_plugins_folder

#: The plugins that do well, whose neighbours the others are.
GOOD = tuple(f"acme/good{number}" for number in range(4))
#: The plugins that do not: what each does is said by its name.
BAD = ("acme/crashes", "acme/hangs", "acme/floods", "acme/ignores", "acme/leaks", "acme/freezes")

_FLOOD_BYTES = 1 << 30
_LEAK_LIMIT = "96MiB"
_SERVE = f"{sys.executable} -u -m echo.main"

_CRASHES = "echo 'no licence found' >&2; exit 3"
# Listens, and says nothing to whoever connects.
_HANGS = f"""
exec {sys.executable} -c '
import os, socket, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.environ["RUNMESH_LISTEN"].removeprefix("unix:"))
listener.listen()
time.sleep(3600)
'
"""
_FLOODS = f"yes \"$(printf '%099d' 0)\" | head -c {_FLOOD_BYTES} & exec {_SERVE}"
# Neither it nor what it started hears SIGTERM; one of those is in a session of its own.
_IGNORES = f"""
trap '' TERM
sh -c 'while :; do sleep 1; done' &
setsid sh -c 'while :; do sleep 1; done' &
{_SERVE} &
while :; do sleep 1; done
"""
_LEAKS = f"""
exec {sys.executable} -c '
import time
kept = []
while True:
    kept.append(bytearray(2 << 20))
    time.sleep(0.03)
'
"""
# Serves for a moment; then its process stands still, and its connections stay.
_FREEZES = f"{_SERVE} & child=$!; sleep 3; kill -STOP $child; wait"
_SCRIPTS = (_CRASHES, _HANGS, _FLOODS, _IGNORES, _LEAKS, _FREEZES)


def write_good(folder: Path) -> None:
    """Puts the plugins that do well into a folder of plugins."""
    for plugin_id in GOOD:
        _write(folder, plugin_id, _SERVE.split())


def write_bad(folder: Path) -> None:
    """Puts the plugins that do not do well into a folder of plugins."""
    for plugin_id, script in zip(BAD, _SCRIPTS, strict=True):
        limits = {"memory": _LEAK_LIMIT} if plugin_id == "acme/leaks" else {}
        _write(folder, plugin_id, ["/bin/sh", "-c", script], limits=limits)


def _write(
    folder: Path, plugin_id: str, command: Sequence[str], *, limits: dict[str, str] | None = None
) -> None:
    """Copies the plugin that ships, under another name and with another command."""
    author, _, name = plugin_id.partition("/")
    place = folder / f".{name}"
    shutil.copytree(
        shipped_plugins_folder() / "echo", place, ignore=shutil.ignore_patterns("__pycache__")
    )
    manifest = {
        "apiVersion": "runmesh/v1",
        "kind": "Plugin",
        "metadata": {"author": author, "name": name, "version": "1.0.0"},
        "run": {"command": list(command), "limits": limits or {}},
        "components": ["components/agent_runner/default.yaml"],
    }
    (place / "manifest.yaml").write_text(json.dumps(manifest), "utf-8")
    # Under its name only when it is whole: the host looks at the folder whenever it likes.
    place.rename(folder / name)
