"""What the guide for runner authors shows of the host's clients does what it says."""

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from runmesh.v1.manifest_pb2 import RunnerManifest

from runner_sdk import AgentRunner, HostClient, Manifest, RunContext, agent_runner
from runner_sdk._manifest_fields import Place, fill
from runner_sdk.testing import StandInHost
from tests.unit.runner_sdk.loopback import serving

_GUIDE = Path(__file__).parents[3] / "docs" / "runners.md"
_SECTION = "## What a run can ask of the host\n"


def _section() -> str:
    text = _GUIDE.read_text("utf-8")
    begin = text.index(_SECTION)
    return text[begin : text.index("\n## ", begin + 1)]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", _section(), re.DOTALL)


def _runner(body: str) -> AgentRunner:
    """Makes a runner of what the guide shows of one."""
    form = "def" if body.startswith("# def") else "async def"
    names: dict[str, Any] = {}
    exec(f"{form} run(ctx):\n{textwrap.indent(body, '    ')}", names)
    run: Callable[[RunContext], Any] = names["run"]
    return agent_runner(run)


def _manifest() -> Manifest:
    """The manifest of the guide, with a runner that has what it shows."""
    [shown] = _blocks("yaml")
    manifest = Manifest.minimal("acme/test")
    runner = manifest.runners["default"]
    runner.CopyFrom(_filled(runner, yaml.safe_load(shown)))
    return manifest


def _filled(runner: RunnerManifest, values: dict[str, Any]) -> RunnerManifest:
    filled = RunnerManifest(
        id=runner.id, name=runner.name, version="1", protocol_version="1", label=runner.label
    )
    fill(filled, values, Place("docs/runners.md"))
    return filled


def _prepare(host: StandInHost) -> None:
    host.add_model("small", "Yes, indeed.")
    host.add_tool("lookup", lambda parameters: {"ticket": parameters["ticket"]})
    host.add_knowledge_base("handbook", "An invoice is due.", "Nothing else.")
    host.add_history("Where is my invoice?", ("assistant", "Here."))
    host.set_prompt("Be kind.")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "Yes, indeed."),
        (1, 'lookup: {"ticket":7}'),
        (2, "An invoice is due. (document 0)\n"),
        (3, "Here.\nWhere is my invoice?\n"),
        (4, "8 bytes, beginning with b'a,b'"),
        (5, "none yet, 1, ['index']"),
        (6, "recorded ['executor'], 1 instructions"),
        (7, "step 0\nstep 1\nstep 2\n"),
        (8, "no-such-artifact"),
        (9, "Here.Where is my invoice?Yes, indeed."),
    ],
)
async def test_what_the_guide_shows_of_a_client_runs(number: int, said: str) -> None:
    async with serving(_runner(_blocks("python")[number]), manifest=_manifest()) as host:
        _prepare(host)
        outcome = await host.run("invoice")

    assert outcome.failed is None
    assert outcome.text == said


def test_every_example_of_a_client_is_run() -> None:
    assert len(_blocks("python")) == 10


def test_every_client_is_in_the_guide() -> None:
    shown = set(re.findall(r"ctx\.host\.(\w+)", _section()))
    clients = {name for name, value in vars(HostClient).items() if isinstance(value, property)}
    assert clients - {"host_id"} <= shown
    assert len(clients) == 12
