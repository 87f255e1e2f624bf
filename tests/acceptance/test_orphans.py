"""A host that is killed beside plugins in several languages: nothing of them is left."""

import os
import subprocess
import sys
from pathlib import Path

from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_plugin, write_scripted_plugin, write_shell_plugin
from tests.integration.host.processes import descendants
from tests.integration.host.waiting import wait_until
from tests.toolchains import require_tool

_SOURCES = Path(__file__).parent / "stubborn"
# Each starts a process in a session of its own that nobody asks to end.
_SHELL = "trap '' TERM HUP; setsid sleep 1013 & sleep 1014"
_PYTHON = """\
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "1015"], start_new_session=True)
time.sleep(3600)
"""
_SLEEPERS = {f"sleep {number}" for number in range(1011, 1016)}
_GONE_SECONDS = 5.0


def test_killed_host_leaves_nothing_of_plugins_in_any_language(tmp_path: Path) -> None:
    go, node = require_tool("go"), require_tool("node")
    program = tmp_path / "stubborn"
    build = [str(go), "build", "-o", str(program), str(_SOURCES / "main.go")]
    subprocess.run(build, check=True, env={**os.environ, "GO111MODULE": "off"}, timeout=50)
    plugins = tmp_path / "plugins"
    write_plugin(plugins, "acme/go", [str(program)])
    write_plugin(plugins, "acme/node", [str(node), str(_SOURCES / "main.mjs")])
    write_plugin(plugins, "acme/python", [sys.executable, "-c", _PYTHON])
    write_shell_plugin(plugins, "acme/shell", _SHELL)
    write_scripted_plugin(plugins)
    host = HostProcess(tmp_path / "data", plugins=plugins)
    try:
        # Most of them never get ready, so that a host which is waited for would give them up.
        host.launch()
        wait_until(lambda: _sleepers(host.pid) == _SLEEPERS)
        left = descendants(host.pid)
        host.kill()
        wait_until(lambda: not any(each.is_alive for each in left), _GONE_SECONDS)
    finally:
        host.close()


def _sleepers(pid: int) -> set[str]:
    found = set()
    for process in descendants(pid):
        try:
            found.add(process.command.strip())
        except OSError:
            # It has ended meanwhile.
            continue
    return found & _SLEEPERS
