"""Plugins that are Python modules, with requirements of their own."""

import json
from pathlib import Path

_RUNNER = """\
import sys

import shade

from runner_sdk import agent_runner, serve


@agent_runner
async def answer(ctx):
    yield ctx.reply(f"{shade.VERSION} in {sys.prefix}")


if __name__ == "__main__":
    serve(answer)
"""


def write_python_plugin(folder: Path, requirements: str = "") -> Path:
    """Writes a plugin `acme/FOLDER` whose runner answers with the version of `shade` it sees."""
    (folder / "desk").mkdir(parents=True)
    (folder / "desk" / "main.py").write_text(_RUNNER)
    component = {
        "apiVersion": "runmesh/v1",
        "kind": "AgentRunner",
        "metadata": {"name": "default", "label": {"en_US": "Desk"}},
        "capabilities": {"streaming": True},
    }
    (folder / "default.yaml").write_text(json.dumps(component))
    if requirements:
        (folder / "requirements.txt").write_text(requirements)
    manifest = {
        "apiVersion": "runmesh/v1",
        "kind": "Plugin",
        "metadata": {"author": "acme", "name": folder.name, "version": "1.0.0"},
        "run": {"python": {"module": "desk.main"}},
        "components": ["default.yaml"],
    }
    # Under its name only when it is whole: a host looks at the folder whenever it likes.
    (folder / "manifest.new").write_text(json.dumps(manifest))
    (folder / "manifest.new").rename(folder / "manifest.yaml")
    return folder
