"""`runmesh runners token`: a plugin attaches with it, and is cut off when it is revoked."""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from tests.acceptance.commands import CommandLine
from tests.integration.host.waiting import wait_until

_MAIN = """\
from runner_sdk import RunContext, agent_runner, serve


@agent_runner(name="answer")
async def answer(ctx: RunContext):
    yield ctx.delta(f"far away: {ctx.text}")


serve(answer)
"""


def write_plugin(folder: Path) -> Path:
    manifest = {
        "apiVersion": "runmesh/v1",
        "kind": "Plugin",
        "metadata": {"author": "acme", "name": "far", "version": "1.0.0", "label": {"en_US": "f"}},
        "run": {"python": {"module": "main"}},
        "components": ["answer.yaml"],
    }
    answer = {
        "apiVersion": "runmesh/v1",
        "kind": "AgentRunner",
        "metadata": {"name": "answer", "label": {"en_US": "answer"}},
        "capabilities": {"streaming": True},
    }
    folder.mkdir()
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    (folder / "answer.yaml").write_text(yaml.safe_dump(answer))
    (folder / "main.py").write_text(_MAIN)
    return folder / "main.py"


def test_a_plugin_attaches_with_its_token_until_that_is_revoked(
    running_host: CommandLine, tmp_path: Path
) -> None:
    made = running_host("runners", "token", "acme/far", "--lifetime", "12h")
    assert made.status == 0
    assert re.fullmatch(r"rma_[A-Za-z0-9_-]{43}\n", made.out)
    token_id = made.err.split()[1]

    agents = tmp_path / "agents.yaml"
    agents.write_text("agents:\n- {id: far, runner_id: 'plugin:acme/far/answer'}\n")
    assert running_host("apply", "-f", str(agents)).status == 0
    process = subprocess.Popen(
        [sys.executable, str(write_plugin(tmp_path / "far"))],
        env=os.environ
        | {
            "RUNMESH_ATTACH": running_host.host_file()["grpc"],
            "RUNMESH_ATTACH_TOKEN": made.out.strip(),
            "RUNMESH_DEVELOPMENT": "1",
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: "acme/far" in running_host("runners", "list").out)
        assert "attached (development)" in running_host("runners", "list").out
        assert running_host("chat", "--agent", "far", "hello").out == "far away: hello\n"
        row = next(
            line for line in running_host("runners", "tokens").out.splitlines() if token_id in line
        )
        assert "acme/far" in row
        assert "never" not in row

        revoked = running_host("runners", "revoke", token_id)
        assert revoked.out == f"token {token_id} for acme/far is revoked\n"
        # Nothing of it works any more, and it says so.
        _, told = process.communicate(timeout=20)
        assert process.returncode == 1
        assert "UNAUTHENTICATED" in told
        assert "acme/far" not in running_host("runners", "list", "--only", "instances").out
    finally:
        process.kill()
        process.wait()


def test_a_token_that_is_not_there_is_named(running_host: CommandLine) -> None:
    ran = running_host("runners", "revoke", "no-such-token")
    assert ran.status == 1
    assert ran.error_line().endswith("'runmesh runners tokens' shows the tokens")


def test_tokens_are_listed_without_their_secrets(running_host: CommandLine) -> None:
    made = running_host("runners", "token", "acme/other", "--json").json()
    assert made["token"]["plugin_id"] == "acme/other"
    listed = running_host("runners", "tokens", "--json")
    assert made["token"]["token_id"] in listed.out
    assert made["secret"] not in listed.out
