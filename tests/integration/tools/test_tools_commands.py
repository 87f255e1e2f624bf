"""`runmesh tools`: added with what a user types, tried, and taken away again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from host_service.cli.failures import CommandError
from host_service.cli.tool_adding import described
from tests.integration.host.host_process import HostProcess
from tests.integration.tools.kept import SERVERS


@pytest.mark.parametrize(
    ("command", "server_id"),
    [
        ("npx -y @modelcontextprotocol/server-everything", "everything"),
        ("uvx mcp-server-git --repository .", "git"),
        ("python weather_server.py", "weather"),
        ("/usr/local/bin/tickets --stdio", "tickets"),
    ],
)
def test_id_is_made_from_the_command(command: str, server_id: str) -> None:
    found = described("", command=command, url="", env=(), headers=(), only=None)
    assert found.id == server_id


def test_id_is_made_from_the_address_and_values_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEATHER_TOKEN", "Bearer x")
    url, headers = "https://weather.example/mcp", ["Authorization=env:WEATHER_TOKEN"]
    found = described("", command="", url=url, env=(), headers=headers, only=["a"])
    assert (found.id, list(found.enabled_tools.names)) == ("weather", ["a"])
    assert found.http.headers[0].value == "Bearer x"
    monkeypatch.delenv("WEATHER_TOKEN")
    with pytest.raises(CommandError, match="WEATHER_TOKEN"):
        described("", command="", url=url, env=(), headers=headers, only=None)


def test_server_is_added_tried_and_removed(tmp_path: Path) -> None:
    (tmp_path / "counter_server.py").write_bytes((SERVERS / "stateful.py").read_bytes())
    with HostProcess(tmp_path / "data") as host:

        def runmesh(*arguments: str, **environment: str) -> tuple[int, str, str]:
            done = subprocess.run(
                [sys.executable, "-m", "host_service", *arguments, "--data", str(host.data)],
                cwd=tmp_path,
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            return done.returncode, done.stdout, done.stderr

        command = f"{sys.executable} counter_server.py note"
        code, out, err = runmesh(
            *("tools", "add", "--mcp-stdio", command, "--env", "TOKEN", "--only", "count"),
            TOKEN="a-secret-value-of-the-user",
        )
        assert code == 0, err
        assert "agent default: is given counter__*" in out
        assert "counter: ready (stateful 1.2.3" in out
        assert "left out: echo" in out
        code, out, err = runmesh("tools", "call", "counter__count", '{"by": 4}')
        assert (code, '"result": 4' in out) == (0, True), err
        code, _, err = runmesh("tools", "call", "counter__count", '{"by": "x"}')
        assert (code, "parameters_json/by" in err) == (1, True)
        code, out, err = runmesh("tools", "list", "--json")
        assert "TOOL_SERVER_STATE_READY" in out
        assert "a-secret-value" not in out + err + host.log()
        code, _, err = runmesh("tools", "add", "gone", "--mcp-stdio", "no-such-command")
        assert (code, "no-such-command is not there" in err) == (1, True)
        code, out, _ = runmesh("tools", "remove", "counter")
        assert "agent default: is no longer given counter__*" in out
        assert runmesh("tools", "remove", "counter")[0] == 1
